"""How many calls and bytes a coding agent needs to reach the planted cause: a scripted client of the MCP server.

python -m benchmarks.agent_reach [--stdio] [--only a,b] [--every]

The client is the protocol's own SDK; its policy is fixed and no model is asked: `list_captures` with the program's
name, `diagnose` of the first path, and the bottleneck of finding 1 is the answer. Programs: the first of each of the
first twelve bottlenecks of the fault suite, in the order of its registry, planted at their highest severity; `--every`
takes all programs. The same two calls on the repaired program say what is left of the cause.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp.client as sdk
from benchmarks.faults import suite
from benchmarks.faults.adopt import CAPTURES
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import table
from mcp.client.stdio import StdioServerParameters

BOTTLENECKS = 12
MOST_CALLS, MOST_BYTES = 2, 6_000
HEADINGS = ("program", "planted cause", "answer", "calls", "bytes", "place", "repaired: state", "its first finding")


@dataclass(frozen=True, slots=True)
class Reached:
    """What the client answered on one program; `calls` and `bytes` are what it needed for it."""

    program: str
    planted: str
    answer: str
    calls: int
    bytes: int
    place: str
    state_after: str
    answer_after: str

    @property
    def is_right(self) -> bool:
        """The planted cause within the bar of calls and bytes."""
        return self.answer == self.planted and self.calls <= MOST_CALLS and self.bytes <= MOST_BYTES


def programs(only: Sequence[str] = (), every: bool = False) -> list[Any]:
    """The faults of the suite that are asked of."""
    planted = [fault for fault in suite.FAULTS if fault.bottleneck not in ("", "none") and archive(fault.name).exists()]
    if only:
        return [fault for fault in planted if fault.name in only]
    if every:
        return planted
    first: dict[str, Any] = {}
    for fault in planted:
        first.setdefault(fault.bottleneck, fault)
    return list(first.values())[:BOTTLENECKS]


def archive(name: str) -> Path:
    """The captures of one program by torch.profiler."""
    return CAPTURES / f"{name}.torch.tar.xz"


def unpack(name: str, root: Path) -> None:
    """The two captures of one program that are asked of."""
    unpacked(archive(name), root)
    for path in root.iterdir():
        if ".high." not in path.name:
            path.unlink()


class Counted:
    """A client that counts what it asks and what it is told."""

    def __init__(self, client: Any) -> None:
        self.client, self.calls, self.bytes = client, 0, 0

    async def call(self, name: str, **given: object) -> dict[str, Any]:
        """One tool call; its answer as a document."""
        answer = await self.client.call_tool(name, given)
        self.calls += 1
        self.bytes += len(answer.content[0].text.encode())
        if answer.is_error:
            raise SystemExit(f"{name}{given}: {answer.content[0].text}")
        return dict(answer.structured_content)


async def asked(client: Any, capture: str) -> tuple[dict[str, Any], Counted]:
    """The policy: find the capture by name, diagnose it."""
    counted = Counted(client)
    listed = await counted.call("list_captures", contains=f"{capture}.")
    return await counted.call("diagnose", handle=listed["captures"][0]["path_untrusted_text"]), counted


def answer_of(document: dict[str, Any]) -> str:
    """The bottleneck of finding 1."""
    return str(document["findings"][0]["bottleneck"]) if document["findings"] else "none"


async def reached(client: Any, fault: Any) -> Reached:
    """One fault, and its repaired program where that was recorded too."""
    found, counted = await asked(client, f"{fault.name}.high.fault")
    state_after = answer_after = "–"
    if (await Counted(client).call("list_captures", contains=f"{fault.name}.high.fix."))["of"]:
        repaired, _ = await asked(client, f"{fault.name}.high.fix")
        state_after, answer_after = repaired["left"]["state"], answer_of(repaired)
    first = found["findings"][0] if found["findings"] else {"where_untrusted_text": {}}
    where = first["where_untrusted_text"]
    place = where.get("place") or where.get("op") or where.get("range") or ""
    return Reached(
        fault.name, fault.bottleneck, answer_of(found), counted.calls, counted.bytes, str(place),
        state_after, answer_after,
    )  # fmt: skip


async def all_reached(faults: Sequence[Any], root: Path, stdio: bool) -> list[Reached]:
    """Every program, over one session."""
    if stdio:
        words = ["-m", "timesink", "mcp", "--root", str(root)]
        server: Any = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    else:
        from timesink.mcp.server import build

        server = build([root])
    async with sdk.Client(server, read_timeout_seconds=120) as client:
        return [await reached(client, fault) for fault in faults]


def measured(faults: Sequence[Any], stdio: bool = False) -> list[Reached]:
    """Unpack the captures and ask."""
    with tempfile.TemporaryDirectory() as folder:
        for fault in faults:
            unpack(fault.name, Path(folder))
        return asyncio.run(all_reached(faults, Path(folder), stdio))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stdio", action="store_true", help="start the server as an agent does, and talk over stdio")
    parser.add_argument("--only", default="", help="programs, separated by commas")
    parser.add_argument("--every", action="store_true", help="every program of the suite")
    options = parser.parse_args()
    found = measured(programs(tuple(filter(None, options.only.split(","))), options.every), options.stdio)
    print(table(HEADINGS, [
        (one.program, one.planted, one.answer if one.is_right else f"**{one.answer}**", str(one.calls), str(one.bytes),
         one.place.replace("|", "/")[:48], one.state_after, one.answer_after)
        for one in found
    ]))  # fmt: skip
    right = sum(one.is_right for one in found)
    print(f"\n{right} of {len(found)} reach the planted cause in at most {MOST_CALLS} calls and {MOST_BYTES} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
