"""Small programs of one thread, written as PyTorch's profiler or Nsight Systems would record them.

A test says what a program does, in the order in which it does it; the files are of invented rows. Both profilers record
the same calls and the same GPU work; operators and frames are PyTorch's alone, and NVTX ranges stand for marks in nsys.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PROCESS, _THREAD = 4242, 4242
_COPIES = {
    "HtoD": (1, "{} -> Device"), "DtoH": (2, "Device -> {}"), "DtoD": (8, "Device -> Device"),
    "pages in": (11, "Managed -> Managed"), "pages out": (12, "Managed -> Managed"),
}  # fmt: skip
_MEMORY = {"Pageable": 0, "Pinned": 1, "Device": 2, "Managed": 3}
_CATEGORY = {"kernel": "kernel", "copy": "gpu_memcpy", "set": "gpu_memset"}


@dataclass
class Program:
    """What one thread does with the GPUs of one `name`; times are in us and run on by themselves.

    A call takes `call_us`, and work begins `late_us` after the call that launches it has returned, or when its stream
    is free.
    """

    gpu: str = "NVIDIA A100-SXM4-80GB"
    now: float = 1000.0
    call_us: float = 5.0
    late_us: float = 4.0
    work: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    named: list[dict[str, Any]] = field(default_factory=list)
    free: dict[tuple[int, int], float] = field(default_factory=dict)

    def pause(self, us: float) -> None:
        """The CPU does what nothing records."""
        self.now += us

    def call(self, name: str, us: float | None = None, correlation: int = 0) -> None:
        """A call of the runtime."""
        us = self.call_us if us is None else us
        self.calls.append({"name": name, "at": self.now, "us": us, "correlation": correlation or self._next()})
        self.now += us

    def launch(
        self, kernel: str, us: float, *, call: str = "cudaLaunchKernel", late_us: float | None = None, stream: int = 7,
        device: int = 0, **facts: Any,
    ) -> None:  # fmt: skip
        """A kernel; `facts` are its grid, block and the like, as torch.profiler calls them."""
        how = {"call": call, "late_us": late_us, "stream": stream, "device": device}
        self._run("kernel", kernel, us, {"grid": [1024, 1, 1], "block": [256, 1, 1], **facts}, how)

    def copy(
        self, way: str, size: int, us: float, *, memory: str = "Pinned", call: str = "cudaMemcpyAsync", stream: int = 7,
        blocking: bool = False,
    ) -> None:  # fmt: skip
        """A copy of so many bytes; one that blocks returns when it is done."""
        sides = _COPIES[way][1].format(memory)
        how = {"call": call, "stream": stream, "blocking": blocking}
        self._run("copy", f"Memcpy {way} ({sides})", us, {"bytes": size}, how)

    def page(self, at: float, us: float, *, way: str = "pages in", size: int = 65536) -> None:
        """A migration of unified memory by itself, at a time of its own: no call asks for it."""
        named = f"Memcpy {way} ({_COPIES[way][1]})"
        self.work.append({"kind": "copy", "name": named, "at": at, "us": us, "stream": 7, "device": 0,
                          "correlation": 0, "facts": {"bytes": size}})  # fmt: skip

    def wait(self, call: str = "cudaDeviceSynchronize") -> None:
        """A call that returns when all work is done."""
        us = max([self.call_us, *(at + 2 - self.now for at in self.free.values())])
        self.call(call, us)

    @contextmanager
    def range(self, name: str, kind: str = "user_annotation", **facts: Any) -> Iterator[None]:
        """A range, an operator (`cpu_op`) or a frame (`python_function`) around what is done in it."""
        begun = self.now
        self.now += 0.5
        row: dict[str, Any] = {"name": name, "kind": kind, "at": begun, "us": 0.0, "facts": facts}
        self.named.append(row)
        yield
        row["us"] = self.now + 0.5 - begun
        self.now += 1.0

    def _next(self) -> int:
        return len(self.calls) + 1

    def _run(self, kind: str, name: str, us: float, facts: Mapping[str, Any], how: Mapping[str, Any]) -> None:
        """Work, and the call that launches it; `how` has the arguments of `launch` or `copy`."""
        call, late_us, stream, device = how["call"], how.get("late_us"), how["stream"], how.get("device", 0)
        correlation = self._next()
        begins = max(
            self.now + self.call_us + (self.late_us if late_us is None else late_us),
            self.free.get((device, stream), 0.0) + 1,
        )
        self.free[device, stream] = begins + us
        self.work.append({"kind": kind, "name": name, "at": begins, "us": us, "stream": stream, "device": device,
                          "correlation": correlation, "facts": facts})  # fmt: skip
        self.call(call, begins + us + 2 - self.now if how.get("blocking") else None, correlation)

    def kineto(self, folder: Path) -> Path:
        """As torch.profiler writes it."""
        events = [_event(row["kind"], row, _PROCESS, _THREAD, row["facts"]) for row in self.named]
        linked = (({"correlation": row["correlation"]}, row) for row in self.calls)
        events += [_event("cuda_runtime", row, _PROCESS, _THREAD, args) for args, row in linked]
        for row in self.work:
            args = {name: row[name] for name in ("device", "stream", "correlation")} | row["facts"]
            events.append(_event(_CATEGORY[row["kind"]], row, row["device"], row["stream"], args))
        devices = sorted({row["device"] for row in self.work} | {0})
        listed = [{"id": device, "name": self.gpu} for device in devices]
        path = folder / "trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": listed, "traceEvents": events}))
        return path

    def nsys(self, folder: Path, threads: Sequence[str] = ()) -> Path:
        """As `nsys export --type sqlite` writes it; operators and frames are left out. `threads` are names of some."""
        strings: dict[str, int] = {}

        def text(name: str) -> int:
            return strings.setdefault(name, len(strings) + 1)

        tid, pid = (_PROCESS << 24) + _THREAD, _PROCESS << 24
        calls = [(*_ns(row), 0, tid, row["correlation"], text(row["name"] + "_v3020"), 0) for row in self.calls]
        kernels, copies = [], []
        for row in self.work:
            place = (*_ns(row), row["device"], 1, row["stream"], row["correlation"], pid)
            if row["kind"] == "kernel":
                sizes = (*row["facts"]["grid"], *row["facts"]["block"])
                kernels.append((*place, text(row["name"]), text(row["name"]), *sizes))
            else:
                way, sides = (
                    row["name"].removeprefix("Memcpy ").partition(" (")[0],
                    row["name"].partition("(")[2].rstrip(")").split(" -> "),
                )
                copies.append((*place, row["facts"]["bytes"], _COPIES[way][0], *(_MEMORY[side] for side in sides)))
        ranges = [(*_ns(row), 59, row["name"], tid) for row in self.named if row["kind"] == "user_annotation"]
        named = [(text(name), 20, tid + at) for at, name in enumerate(threads)]
        host = "start end eventClass globalTid correlationId nameId returnValue"
        device = "start end deviceId contextId streamId correlationId globalPid"
        launch = "demangledName shortName gridX gridY gridZ blockX blockY blockZ"
        path = folder / "report.sqlite"
        with closing(sqlite3.connect(path)) as db, db:
            for table, columns, rows in (
                ("CUPTI_ACTIVITY_KIND_RUNTIME", host, calls),
                ("CUPTI_ACTIVITY_KIND_KERNEL", f"{device} {launch}", kernels),
                ("CUPTI_ACTIVITY_KIND_MEMCPY", f"{device} bytes copyKind srcKind dstKind", copies),
                ("NVTX_EVENTS", "start end eventType text globalTid", ranges),
                ("ThreadNames", "nameId priority globalTid", named),
                ("TARGET_INFO_GPU", "id name cuDevice", [(0, self.gpu, 0)]),
                ("StringIds", "id value", [(number, name) for name, number in strings.items()]),
            ):  # fmt: skip
                names = columns.split()
                if rows:
                    db.execute(f"CREATE TABLE {table} ({', '.join(names)})")
                    db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", rows)
        return path


def _event(kind: str, row: Mapping[str, Any], process: int, thread: int, args: Mapping[str, Any]) -> dict[str, Any]:
    placed = {"ph": "X", "cat": kind, "name": row["name"], "pid": process, "tid": thread}
    return {**placed, "ts": round(row["at"], 3), "dur": round(row["us"], 3), "args": dict(args)}


def _ns(row: Mapping[str, Any]) -> tuple[int, int]:
    return round(1000 * row["at"]), round(1000 * (row["at"] + row["us"]))
