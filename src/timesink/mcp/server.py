"""The server: its tools, one more where programs may be run; captures, rules and tables as resources; prompts.

What an agent sends is made such that it is answered: JSON can spell half of a surrogate pair, which no text holds, and
the SDK drops a request with one in silence.
"""

import json
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from io import BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import Any, Final, ParamSpec

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import ValidationError

from timesink import __version__
from timesink.diagnosis.registry import all_rules, find
from timesink.errors import TimesinkError, UsageError, unknown
from timesink.mcp import MARK, figures, findings, text
from timesink.mcp import captures as opened
from timesink.mcp import figures as changes
from timesink.mcp.captures import Captures
from timesink.mcp.declared import Declared, judge_declared, next_declared, run_declared, try_declared
from timesink.model.tables import ALL
from timesink.untrusted import scrub, scrub_sentence
from timesink.untrusted.spending import watched

Given = ParamSpec("Given")

_PROMPTS: Final = dict(
    section.strip().split("\n", 1)
    for section in Path(__file__).with_name("prompts.md").read_text(encoding="utf-8").split("\n## ")[1:]
)
"""What an agent is told first (`instructions`), and what each prompt says."""

_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
_RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)


class ToolServer(MCPServer[Any]):
    """A server that says of a call with wrong arguments what the tool takes."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """What the tool answers."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            schema = next(tool.input_schema for tool in await self.list_tools() if tool.name == name)
            needed = schema.get("required", ())
            takes = ", ".join(f"{key}{'' if key in needed else ' (optional)'}" for key in schema["properties"])
            wrong = (f"{'.'.join(map(str, one['loc']))}: {one['msg'].lower()}" for one in error.__cause__.errors())
            raise _refused(
                UsageError(f"{name}: {'; '.join(wrong)}", remedy=f"it takes {takes or 'nothing'}")
            ) from error


def build(roots: Sequence[Path], declared: Declared | None = None) -> MCPServer[Any]:
    """A server that may read, and write new files, under these folders, and run the declared commands."""
    server = ToolServer(
        "timesink", instructions=_PROMPTS["instructions"].format(MARK=MARK), version=__version__, log_level="ERROR"
    )
    captures = Captures(roots)
    _add_reading(server, captures)
    _add_findings(server, captures)
    _add_planning(server, captures)
    if declared is not None:
        _add_running(server, declared)
    _add_reference(server, captures)
    _add_prompts(server)
    return server


def answering(tool: Callable[Given, dict[str, Any]]) -> Callable[Given, CallToolResult]:
    """The tool with its document as compact text and structured content, and our errors as words for the agent."""

    @wraps(tool)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> CallToolResult:
        try:
            with watched():
                document = tool(*args, **kwargs)
        except (TimesinkError, OSError) as error:
            raise _refused(error) from error
        return CallToolResult(content=[TextContent(type="text", text=text(document))], structured_content=document)

    call.__annotations__ = {**tool.__annotations__, "return": CallToolResult}
    return call


def _refused(error: Exception) -> ToolError:
    """Our error for the agent: it may quote a file, a query or a database, so it is marked as every such text is."""
    return ToolError(text({f"error{MARK}": scrub_sentence(str(error))}))


def _add_reading(server: MCPServer[Any], captures: Captures) -> None:
    def list_captures(contains: str = "", cursor: int = 0) -> dict[str, Any]:
        """The profiles under the folders this server may read, newest first. contains: part of a path."""
        return opened.listed_captures(captures, contains, max(cursor, 0))

    def open_capture(path: str, unprofiled_step_ms: float | None = None) -> dict[str, Any]:
        """Open a profile: PyTorch profiler JSON, Nsight Systems or Nsight Compute report, or a folder of ranks.

        unprofiled_step_ms: the step without a profiler, where known: it makes gains of host time exact.
        """
        return opened.open_document(captures.open(path, unprofiled_step_ms))

    def show(
        handle: str, what: str, contains: str = "", sort: str = "total_ns", cursor: int = 0, before: str | None = None
    ) -> dict[str, Any]:
        """Figures of a capture, no judgement. what: one of
        steps: where the mean step of each GPU goes, in milliseconds that sum to the step;
        idle: what each GPU waited for, every gap blamed whole and once, then the costliest places;
        lines: GPU, idle and CPU time by line of the program, where stacks were recorded, else by range;
        kernels: by cost (sort: total_ns, count, mean_ns, max_ns; contains: part of a name);
        limits: what limits each kernel of a Nsight Compute report, and the most that could be gained;
        statement: the sentences to write down of a run (before: the same program before a change);
        moved: what moved since the capture before, in parts that sum to the change; no verdict, which is verify's.
        """
        capture = captures.get(handle)
        shown: dict[str, Callable[[], dict[str, Any]]] = {
            "steps": lambda: figures.summary_document(capture),
            "idle": lambda: figures.idle_document(capture),
            "lines": lambda: figures.lines_document(capture),
            "kernels": lambda: figures.kernel_rows(capture, sort, contains, max(cursor, 0)),
            "limits": lambda: figures.limits_document(capture),
            "moved": lambda: changes.compare_captures_of(captures.get(before or ""), capture),
            "statement": lambda: figures.statement_document(capture, None if before is None else captures.get(before)),
        }
        if what not in shown:
            raise UsageError(f"show has no {what!r}", remedy=f"choose one of: {', '.join(shown)}")
        return shown[what]()

    def query(handle: str, sql: str) -> dict[str, Any]:
        """One SELECT (DuckDB) over the tables of a capture, and over steps and idle. schema://tables lists them."""
        return figures.query_rows(captures.get(handle), sql)

    for tool in (list_captures, open_capture, show, query):
        server.tool(annotations=_READS)(answering(tool))


def _add_findings(server: MCPServer[Any], captures: Captures) -> None:
    def diagnose(handle: str, limit: int = 5, cursor: int = 0, worth_percent: float = 1.0) -> dict[str, Any]:
        """What limits the step: findings, costliest first, each with the time a fix would win back, and what is left.

        handle: of an open capture, or a path. left.state is "nothing_above" where no finding is worth worth_percent.
        """
        return findings.diagnosis_document(captures.get(handle), min(max(limit, 1), 20), max(cursor, 0), worth_percent)

    def explain_finding(handle: str, number: int, cursor: int = 0, window: bool = False) -> dict[str, Any]:
        """One finding in full: evidence and its origin, what to do, how to check it, when it misleads.

        window: instead what the CPU and the GPU did around it, in the step where it is most typical.
        """
        if window:
            return findings.window_around(captures.get(handle), number)
        return findings.finding_document(captures.get(handle), number, max(cursor, 0))

    for tool in (diagnose, explain_finding):
        server.tool(annotations=_READS)(answering(tool))


def _add_planning(server: MCPServer[Any], captures: Captures) -> None:
    def plan(handle: str, change: str = "") -> dict[str, Any]:
        """What to change, in which order: the step before and after each change, and why it ends. Changes nothing.

        change: the price of this one alone, such as 'remove_sync' or 'scale kernel:.*gemm.* 0.5'.
        """
        capture = captures.get(handle)
        return changes.priced_change(capture, change) if change else changes.plan_document(capture)

    def command(program: str, question: str = "", after: str = "") -> dict[str, Any]:
        """The exact command, not run: of the profiler that answers a question about a program; or, with after (the
        changed program), of the comparison that decides whether the change made it faster.
        """
        return changes.verify_command(program, after) if after else opened.capture_command(question, program)

    def export(handle: str, kind: str, path: str) -> dict[str, Any]:
        """Write a new file for people: kind html (report) or perfetto (timeline)."""
        return opened.export_file(captures, captures.get(handle), kind, path)

    for tool in (plan, command):
        server.tool(annotations=_READS)(answering(tool))
    server.tool(annotations=_WRITES)(answering(export))


def _add_running(server: MCPServer[Any], declared: Declared) -> None:
    one_at_a_time = anyio.Lock()

    async def alone(what: Callable[..., Awaitable[dict[str, Any]]], *given: Any) -> CallToolResult:
        try:
            if one_at_a_time.locked():
                raise UsageError("a command is running", remedy="wait for it: two at once would disturb each other")
            async with one_at_a_time:
                answer = await what(declared, *given)
        except TimesinkError as error:
            raise _refused(error) from error
        return CallToolResult(content=[TextContent(type="text", text=text(answer))], structured_content=answer)

    async def run(name: str, try_changes: bool = False) -> CallToolResult:
        return await alone(try_declared if try_changes else run_declared, name)

    async def next_edit(name: str, skip: str = "") -> CallToolResult:
        """The dearest edit of a declared PyTorch program that its source has a place for: diff, place, foretold gain.

        Runs the program twice and edits nothing. skip: fixes to leave out, with commas. doubt: why only a person can
        allow it.
        """
        return await alone(next_declared, name, skip)

    async def judge(name: str, lower_precision: bool = False) -> CallToolResult:
        """Whether the files as they lie make a declared PyTorch program faster than the last judged ones (first: the
        commit at the server's start), and compute the same. Runs both in turns. Only "faster" counts.

        lower_precision: results may move as far as in 16 bits; only where the person allowed that.
        """
        return await alone(judge_declared, name, lower_precision)

    listed = "; ".join(f"{name}: {shlex.join(words)}" for name, words in declared.commands.items())
    run.__doc__ = (
        "Run a command that the person declared, by its name, and wait for it. try_changes: measure what changes win "
        f"in that PyTorch program, and which to keep (about 3 minutes). {scrub(listed, 600)}"
    )
    for tool in (run, next_edit, judge):
        server.tool(annotations=_RUNS)(tool)


def _add_reference(server: MCPServer[Any], captures: Captures) -> None:
    @server.resource("captures://list", mime_type="application/json")
    def listed() -> str:
        """The profiles under the folders this server may read, newest first: paths for every tool."""
        return text(opened.listed_captures(captures, "", 0))

    @server.resource("rules://index", mime_type="text/plain")
    def rules() -> str:
        """Every rule in one line: its code, its name and what it finds."""

        return "\n".join(f"{rule.code} {rule.card.name}: {rule.card.summary}" for rule in all_rules())

    @server.resource("rules://{code}", mime_type="text/markdown")
    def rule(code: str) -> str:
        """The page of a rule: what it detects, how it is measured, what to do, when it misleads, its limits."""
        from timesink.render.rule_page import rule_markdown

        return rule_markdown(find(code))

    @server.resource("schema://tables", mime_type="text/plain")
    def tables() -> str:
        """Every table that query can read, with its columns, in one line each."""

        return "\n".join(f"{table.name}: {', '.join(table.columns)}" for table in ALL)

    @server.resource("schema://{name}", mime_type="text/plain")
    def schema(name: str) -> str:
        """The columns of a table: type or unit, and meaning."""

        for table in ALL:
            if table.name == name:
                return "\n".join(
                    f"{key} [{column.unit or column.dtype}]: {column.doc}" for key, column in table.columns.items()
                )
        raise unknown("table", name, (table.name for table in ALL), "schema://tables")


def _add_prompts(server: MCPServer[Any]) -> None:
    @server.prompt(name="edit-loop")
    def edit_loop(name: str) -> str:
        """Edit a declared program until no edit is left, each kept only as the judge says."""
        return _PROMPTS["edit-loop"].format(name=name)

    @server.prompt(name="optimize-loop")
    def optimize_loop() -> str:
        """One bottleneck at a time, from capture to verified change."""
        return _PROMPTS["optimize-loop"]

    @server.prompt(name="why-slow")
    def why_slow(path: str) -> str:
        """Say why one capture's step is slow, with evidence, and change nothing."""
        return _PROMPTS["why-slow"].format(path=path)

    @server.prompt(name="check-change")
    def check_change(before: str, after: str) -> str:
        """Decide whether a change made a program faster, from its two commands."""
        return _PROMPTS["check-change"].format(before=before, after=after)


def without_halves(line: bytes) -> bytes:
    """The line with the replacement character for each escape of half a surrogate pair."""
    if rb"\ud" not in line.lower():
        return line
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
    except (ValueError, RecursionError):
        return line  # for the SDK to refuse
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode() + b"\n"


def mend_requests() -> None:
    """Have requests read so from now on. Programs that the server starts see no input, as the SDK would have it."""
    wire = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = TextIOWrapper(BufferedReader(_Mended(wire)), encoding="utf-8", errors="replace")


class _Mended(RawIOBase):
    def __init__(self, wire: Any) -> None:
        self._wire, self._left = wire, b""

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def readinto(self, into: Any) -> int:
        """Bytes of one line, or of what is left of it."""
        self._left = self._left or without_halves(self._wire.readline())
        count = min(len(into), len(self._left))
        into[:count], self._left = self._left[:count], self._left[count:]
        return count
