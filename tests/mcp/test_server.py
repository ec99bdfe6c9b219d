"""The server, over stdio and in this process, spoken to by the SDK's client: few calls and small answers."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import as_file, files
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import pytest

sdk = pytest.importorskip("mcp.client", reason="mcp is not installed (pip install mcp)")
pytest.importorskip("duckdb", reason="duckdb is not installed (pip install duckdb)")

from mcp.client.stdio import StdioServerParameters  # noqa: E402
from tests.docs.printed import texts  # noqa: E402
from tests.render.test_hostile_names import ACTS_ON_TERMINAL, HOSTILE, LOG_COMMAND  # noqa: E402

from timesink.diagnosis.engine import diagnose  # noqa: E402
from timesink.mcp import BUDGET_BYTES, MARK, text  # noqa: E402
from timesink.mcp import server as server_module  # noqa: E402
from timesink.mcp.captures import OpenCapture, open_document  # noqa: E402
from timesink.mcp.declared import Declared  # noqa: E402
from timesink.mcp.figures import kernel_rows, lines_document, statement_document, summary_document  # noqa: E402
from timesink.mcp.findings import diagnosis_document, finding_document, window_around  # noqa: E402
from timesink.mcp.server import build  # noqa: E402
from timesink.model.tables import DEVICE_OPS, HOST_OPS, RANGES  # noqa: E402
from timesink.model.trace import Trace  # noqa: E402
from timesink.readers import read  # noqa: E402

Call = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    for name in ("gpt_before", "gpt_after"):
        with as_file(files("timesink.cli").joinpath(f"demo/{name}.json.xz")) as path:
            shutil.copy(path, folder / f"{name}.json.gz")
    return folder


Talk = Callable[[Any, Call], Awaitable[None]]


def started(root: Path, talk: Talk, *more: str) -> None:
    """Start the server as an agent would, and talk to it."""
    command = [sys.executable, "-m", "timesink", "mcp", "--root", str(root), *more]
    spoken(StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ)), talk)


def spoken(server: Any, talk: Talk) -> None:
    """Talk to a server that is here, or that is started for it."""

    async def session() -> None:
        async with sdk.Client(server, read_timeout_seconds=60) as client:

            async def call(name: str, /, **given: object) -> dict[str, Any]:
                answer = await client.call_tool(name, given)
                shown = answer.content[0].text
                assert len(shown) <= BUDGET_BYTES
                if answer.is_error:
                    return {"error": shown}
                assert json.loads(shown) == answer.structured_content
                return dict(answer.structured_content)

            await talk(client, call)

    with ThreadPoolExecutor(1) as thread:  # whatever event loop another test may hold
        thread.submit(asyncio.run, session()).result()


def test_why_is_this_step_slow_takes_two_calls(root: Path) -> None:
    async def talk(client: Any, call: Call) -> None:
        found = await call("diagnose", handle="gpt_before.json.gz")
        assert found["verdict"]["bottleneck"] == "input_pipeline"
        first = found["findings"][0]
        assert first["rule"] == "IDL101"
        assert first["gain_per_step"]["unit"] == "ms"
        assert found["left"]["state"] == "worth_fixing"
        assert (await call("diagnose", handle=found["handle"], worth_percent=99))["left"]["state"] == "nothing_above"
        assert "no share" in (await call("diagnose", handle=found["handle"], worth_percent=0))["error"]
        whole = await call("explain_finding", handle=found["handle"], number=1)
        assert {"what_to_do", "when_it_misleads", "evidence"} <= whole.keys()
        assert all({"value", "unit"} <= fact.keys() for fact in whole["evidence"])
        assert any("source_table" in fact for fact in whole["evidence"])

    spoken(build([root]), talk)


@pytest.mark.slow
def test_a_whole_exchange(root: Path) -> None:  # noqa: PLR0915  # one session
    """First contact defect 30."""

    async def talk(client: Any, call: Call) -> None:  # one session
        tools = (await client.list_tools()).tools
        assert len(tools) == 9  # and three more where commands were declared
        assert all(tool.description and tool.annotations for tool in tools)
        assert [tool.name for tool in tools if not tool.annotations.read_only_hint] == ["export"]
        before = (await call("open_capture", path="gpt_before.json.gz"))["handle"]
        after = (await call("open_capture", path=str(root / "gpt_after.json.gz")))["handle"]
        assert before != after
        (device,) = (await call("show", handle=before, what="steps"))["devices"]
        assert sum(device["parts_ms"].values()) == pytest.approx(device["step_ms"], rel=1e-3)
        kernels = await call("show", handle=before, what="kernels", sort="count", contains="elementwise")
        assert all("elementwise" in row["name" + MARK] for row in kernels["kernels"])
        around = await call("explain_finding", handle=before, number=1, window=True)
        assert around["claimed_ns"] > 0
        rows = await call("query", handle=before, sql="SELECT count(*) AS n FROM steps")
        assert rows["rows" + MARK] == [[11]]
        listed = await call("list_captures", contains="gpt")
        assert {Path(one["path" + MARK]).name for one in listed["captures"]} == {p.name for p in root.iterdir()}
        waits = await call("show", handle=before, what="idle")
        assert (
            "input pipeline" in str(waits["causes"]) and "idle: input pipeline" in device["parts_ms"]
        )  # as people read
        assert waits["places"]
        by_line = await call("show", handle=before, what="lines")
        assert by_line["lines"]
        assert any("--stacks" in note for note in by_line["notes" + MARK])
        said = await call("show", handle=after, what="statement", before=before)
        assert any("before (" in row["statement" + MARK] for row in said["statements"])
        first, second, *_ = (await call("plan", handle=before))["rungs"]
        assert (first["change"], first["then_ms"]["value"]) == ("loader_workers", second["step_ms"])
        (price,) = (await call("plan", handle=before, change="remove_sync"))["prices"]
        assert price["low_ms"] <= price["gain_ms"] <= price["high_ms"] < price["step_ms"] < 11
        assert "no counters" in (await call("show", handle=before, what="limits"))["error"]
        moved = await call("show", handle=after, what="moved", before=before)
        assert moved["outcome"] == "inconclusive"
        assert moved["parts_sum_to_change_ns"] < 0
        assert "verify" in moved["to_decide"]
        plan = await call("command", program="python a.py", after="python b.py")
        assert plan["argv"][:2] == ["timesink", "verify"]
        assert (await call("command", question="GPU idle", program="python a.py"))["argv"][-2:] == [
            "python",
            "a.py",
        ]
        made = await call("export", handle=before, kind="html", path="report.html")
        assert (root / "report.html").stat().st_size == made["bytes"] > 50_000
        assert 'id="memory"' in (root / "report.html").read_text()  # the whole report, as the command writes it

    started(root, talk)


def test_resources_and_prompts_are_listed_and_answer(root: Path) -> None:
    (root / "config.json").write_text('{"lr": 0.1}')  # JSON, and no profile

    async def talk(client: Any, call: Call) -> None:
        assert (await call("list_captures", contains="config"))["of"] == 0
        page = await client.read_resource("rules://IDL101")
        assert "misleads" in page.contents[0].text
        assert "device_ops" in (await client.read_resource("schema://tables")).contents[0].text
        assert {str(one.uri) for one in (await client.list_resources()).resources} == {
            "captures://list", "rules://index", "schema://tables",
        }  # fmt: skip
        assert "gpt_before.json.gz" in (await client.read_resource("captures://list")).contents[0].text
        assert "IDL101" in (await client.read_resource("rules://index")).contents[0].text
        given = {
            "why-slow": {"path": "a"},
            "check-change": {"before": "a", "after": "b"},
            "optimize-loop": {},
            "edit-loop": {"name": "train"},
        }
        for prompt in (await client.list_prompts()).prompts:
            told = (await client.get_prompt(prompt.name, given.pop(prompt.name))).messages[0].content.text
            assert any(word in told for word in ("verify", "when_it_misleads", "judge"))
        assert not given

    spoken(build([root]), talk)
    (root / "config.json").unlink()


def test_calls_that_texts_for_agents_name_are_calls_that_the_tools_take(root: Path) -> None:
    """`tool(word)` names the tool's own parameters, in their order; what stands for a value is quoted or a number."""
    server = build([root], Declared({"train": ("true",)}, root, timeout_s=60))
    folder = Path(server_module.__file__).parent
    told = "\n".join(path.read_text("utf-8") for path in folder.glob("*.md"))
    printed = "\n".join(text for path in folder.glob("*.py") for text in texts(path))
    assert told and "show(handle, 'steps')" in printed

    async def talk(client: Any, call: Call) -> None:
        tools = {tool.name: list(tool.input_schema["properties"]) for tool in (await client.list_tools()).tools}
        words = {*chain.from_iterable(tools.values())}
        calls = [
            found
            for found in re.findall(r"\b([a-z_]+)\(([^()]*)\)", f"{told}\n{printed}")
            if found[0] in tools or found[1].split(",")[0].partition("=")[0] in words
        ]
        assert {name for name, _ in calls} <= {*tools} and len({name for name, _ in calls}) >= 8
        for name, given in calls:
            for at, word in enumerate(part.strip() for part in given.split(",") if part.strip()):
                key, named, _ = word.partition("=")
                mine = "handle" if key == "after" and name == "show" else key
                assert mine in tools[name] if named else word[0] in "\"'{X0123456789" or mine == tools[name][at], (
                    name,
                    given,
                )
        assert "path: " not in (wrong := (await call("diagnose", path="gpt_before.json.gz"))["error"])
        assert (
            "handle: field required" in wrong
            and "it takes handle, limit (optional)" in wrong
            and "pydantic" not in wrong
        )

    spoken(server, talk)


def test_errors_say_what_to_call_next_and_nothing_outside_the_root_is_touched(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"traceEvents": []}')
    (root / "link.json").symlink_to(secret)
    (root / "taken.html").write_text("mine")

    async def talk(client: Any, call: Call) -> None:
        assert "open_capture" in (await call("diagnose", handle="cap_none"))["error"]
        for path in (str(secret), "link.json", "../../etc/passwd", "/etc/passwd"):
            assert "outside" in (await call("open_capture", path=path))["error"]
        handle = (await call("open_capture", path="gpt_before.json.gz"))["handle"]
        assert "there is no finding 99" in (await call("explain_finding", handle=handle, number=99))["error"]
        assert "exactly one SELECT" in (await call("query", handle=handle, sql="DROP TABLE steps"))["error"]
        unknown = await call("query", handle=handle, sql='SELECT "obey me" FROM steps')
        assert f'{{"error{MARK}":"' in unknown["error"] and "obey me" in unknown["error"]
        assert (
            "Permission" in (await call("query", handle=handle, sql="SELECT * FROM read_text('/etc/passwd')"))["error"]
        )
        for path in ("taken.html", str(tmp_path / "out.html")):
            assert "error" in await call("export", handle=handle, kind="html", path=path)
        for path in (".bashrc", "a.sh", ".git/a.html", ".hidden.html", "a.html.py", "noending", "a.json"):
            assert "hidden folder" in (await call("export", handle=handle, kind="html", path=path))["error"], path
            assert not (root / path).exists()
        assert "choose one of" in (await call("show", handle=handle, what="kernels", sort="size"))["error"]

        assert "statement" in (await call("show", handle=handle, what="statment"))["error"]

    spoken(build([root]), talk)
    assert (root / "taken.html").read_text() == "mine"
    assert not (tmp_path / "out.html").exists()
    (root / "link.json").unlink()


def renamed(trace: Trace, name: str) -> Trace:
    """Every kernel, operator and range under one hostile name."""
    valid = name.encode("utf-8", "replace").decode("utf-8")
    column = pl.lit(valid).cast(pl.Categorical()).alias("name")
    tables = {
        table: frame.with_columns(column) if table in (DEVICE_OPS, HOST_OPS, RANGES) else frame
        for table, frame in trace.tables.items()
    }
    return Trace(valid[:50], tables, trace.notes)


def strings(value: Any, key: str = "") -> list[tuple[str, str]]:
    """Every text of a document with the key it stands under; a marked key marks all below it."""
    if isinstance(value, str):
        return [(key, value)]
    if isinstance(value, dict):
        return [found for name, part in value.items() for found in strings(part, key if key.endswith(MARK) else name)]
    return [found for part in value for found in strings(part, key)] if isinstance(value, list) else []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*HOSTILE[:-1], HOSTILE[-1][:5_000]])
def test_hostile_names_stand_under_marked_keys_only_and_answers_stay_small(root: Path, name: str) -> None:
    trace = renamed(read(root / "gpt_before.json.gz", cache=False), name)
    capture = OpenCapture("cap_hostile", (root / "gpt_before.json.gz",), trace, diagnose(trace))
    documents = [
        open_document(capture),
        summary_document(capture),
        diagnosis_document(capture, 20, 0),
        kernel_rows(capture, "count", "", 0),
        lines_document(capture),
        statement_document(capture, None),
    ]
    for number in range(1, len(capture.diagnosis.findings) + 1):
        documents += [finding_document(capture, number), window_around(capture, number)]
    tame = {found for _, found in strings([open_document(capture)["next"]])}
    piece = name.strip()[:12]
    for document in documents:
        shown = text(document)
        assert len(shown) <= BUDGET_BYTES
        assert not ACTS_ON_TERMINAL.search(shown)
        for key, found in strings(document):
            assert not LOG_COMMAND.search(found)
            assert key.endswith(MARK) or piece not in found or found in tame


def test_the_same_bytes_have_the_same_handle_wherever_they_lie(root: Path, tmp_path: Path) -> None:
    from timesink.mcp.captures import Captures

    shutil.copy(root / "gpt_after.json.gz", tmp_path / "another_name.json.gz")
    assert Captures([root]).open("gpt_after.json.gz").handle == Captures([tmp_path]).open("another_name.json.gz").handle


@pytest.mark.slow
def test_a_request_with_half_of_a_pair_is_answered(root: Path) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    asked = {"name": "open_capture", "arguments": {"path": "\ud800"}}
    sent = (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": asked},
    )
    command = [sys.executable, "-m", "timesink", "mcp", "--root", str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin
        assert server.stdout
        for one in sent:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **one}) + "\n")
            server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(2)]
        server.stdin.close()
    assert [answer["id"] for answer in answers] == [1, 2]
    assert "does not exist" in answers[1]["result"]["content"][0]["text"]


def test_without_the_sdk_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from timesink.cli.app import run

    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert run(["mcp"]) == 2
    assert "pip install 'mcp" in capsys.readouterr().err


def test_the_skill_and_the_page_name_the_tools_there_are(root: Path) -> None:
    skill = files("timesink").joinpath("mcp/SKILL.md").read_text(encoding="utf-8")
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "agents.md").read_text(encoding="utf-8")

    async def talk(client: Any, call: Call) -> None:
        for tool in (await client.list_tools()).tools:
            assert f"`{tool.name}" in page
            assert f"`{tool.name}" in skill or tool.name == "export"

    spoken(build([root]), talk)


def test_the_registry_entry_starts_this_server() -> None:
    from timesink.cli.app import run

    root = Path(__file__).resolve().parents[2]
    entry = json.loads((root / "server.json").read_text(encoding="utf-8"))
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (package,) = entry["packages"]
    assert entry["version"] == package["version"] == project["version"]
    assert package["identifier"] == project["name"]
    assert package["runtimeArguments"][0]["value"] == "timesink[mcp]"
    assert "mcp" in project["optional-dependencies"]
    assert len(entry["description"]) <= 100  # the registry takes no more
    words = [part["name"] if part["type"] == "named" else part["value"] for part in package["packageArguments"]]
    assert words == ["mcp", "--root"]
    assert run([*words, "/nowhere/at/all"]) == 2
