"""Clocks, temperature, throttling and foreign processes of the GPUs while runs go on, read from nvidia-smi.

One nvidia-smi streams samples for the whole session into a file; a run's samples are those between its start and end.
Without nvidia-smi or a GPU the watch is absent and says why: a state, not an error.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from timesink.records import Record, replace
from timesink.untrusted import is_made_of
from timesink.untrusted.nvidia_tools import ask
from timesink.verify.environment import Command

_FIELDS = ("timestamp", "index", "uuid", "clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
_REASON_FIELDS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # renamed with driver 535
_PERIOD_MS = 250
_ANSWER_S = 20.0
# NVML's nvmlClocksEventReasons bits that slow a GPU below what was asked of it.
SLOWING = {
    0x4: "software power cap", 0x8: "hardware slowdown", 0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown", 0x80: "hardware power brake",
}  # fmt: skip


class GpuSample(Record):
    """One line of nvidia-smi: seconds since the epoch, number of the GPU, MHz, degrees Celsius (None where the GPU does
    not say), and the bits of what slows its clock."""

    time_s: float
    index: int
    sm_mhz: float | None
    celsius: float | None
    reasons: int

    @property
    def slowed_by(self) -> tuple[str, ...]:
        """What held the clock down in this sample."""
        return tuple(name for bit, name in SLOWING.items() if self.reasons & bit)


class GpuState(Record):
    """One run's samples over its GPUs: median SM clock, highest temperature, what slowed it, who else was there."""

    samples: int
    sm_mhz: float | None = None
    celsius: float | None = None
    slowed_by: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


def parse_samples(text: str) -> list[GpuSample]:
    """Lines of ``--format=csv,noheader,nounits``; lines that are cut or no sample are left out."""
    samples = []
    for row in csv.reader(io.StringIO(text), skipinitialspace=True):
        if len(row) != len(_FIELDS) + 1 or not row[1].strip().isdigit():
            continue
        try:
            when = datetime.strptime(row[0].strip(), "%Y/%m/%d %H:%M:%S.%f").timestamp()
        except ValueError:
            continue
        samples.append(GpuSample(when, int(row[1]), _number(row[3]), _number(row[5]), _mask(row[7])))
    return samples


def parse_processes(text: str) -> list[tuple[str, int, str]]:
    """(GPU uuid, process id, program) of ``--query-compute-apps``; the program's name is untrusted text."""
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [(row[0].strip(), int(row[1]), row[2].strip()) for row in rows if len(row) >= 3 and row[1].strip().isdigit()]


def condense(samples: list[GpuSample], foreign: tuple[str, ...] = ()) -> GpuState:
    """The state of one run. Idle samples (NVML bit 0x1) do not count towards the clock."""
    clocks = sorted(s.sm_mhz for s in samples if s.sm_mhz is not None and not s.reasons & 0x1)
    heat = [s.celsius for s in samples if s.celsius is not None]
    reasons = {name for sample in samples for name in sample.slowed_by}
    clock = clocks[len(clocks) // 2] if clocks else None
    return GpuState(len(samples), clock, max(heat, default=None), tuple(sorted(reasons)), foreign)


def visible_devices(commands: Iterable[Command]) -> str | None:
    """The GPUs the commands may use, as nvidia-smi's ``-i`` takes them; None where all, or where they differ."""
    name = "CUDA_VISIBLE_DEVICES"
    chosen = {command.environment.get(name, os.environ.get(name)) for command in commands}
    only = chosen.pop() if len(chosen) == 1 else None
    return only if only and is_made_of(only, ",/-") and not only.startswith("-") else None


class GpuWatch:
    """Context manager around one streaming nvidia-smi. `absent` says why there is nothing to see, or is empty.

    Where several GPUs are there and none was selected, it cannot know which the program uses: it then keeps clocks and
    heat, and leaves out throttling and other processes, which may belong to somebody else's GPU (`remark` says so).
    """

    def __init__(self, folder: Path, devices: str | None = None) -> None:
        self.absent = ""
        self.log = folder / "nvidia_smi.csv"
        self.errors = folder / "nvidia_smi.txt"
        self._devices = devices
        self._tool = shutil.which("nvidia-smi")
        self._stream: subprocess.Popen[bytes] | None = None
        self._read_bytes = 0
        self._gpus: set[int] = set()

    @property
    def remark(self) -> str:
        """What a report must say of the watch, or ""."""
        if self.absent:
            return self.absent
        unsure = f"the program may use any of {len(self._gpus)} GPUs: throttling and other processes were not judged"
        return f"{unsure}; select with CUDA_VISIBLE_DEVICES" if self._is_unsure else ""

    @property
    def _is_unsure(self) -> bool:
        return self._devices is None and len(self._gpus) > 1

    def __enter__(self) -> GpuWatch:
        if self._tool is None:
            self.absent = "nvidia-smi is not on this machine: clocks, heat and other processes were not watched"
            return self
        for reason in _REASON_FIELDS:
            if self._start(reason):
                return self
        first = self.errors.read_text("utf-8", "replace").strip() or self.log.read_text("utf-8", "replace").strip()
        self.absent = f"nvidia-smi reports no GPU ({first[:120]!r}): clocks, heat and other processes were not watched"
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None and self._stream.poll() is None:
            self._stream.terminate()
            self._stream.wait()

    def state(self, started_s: float, ended_s: float, foreign: tuple[str, ...] = ()) -> GpuState:
        """What was seen between two wall-clock times. Runs follow one another, so each sample is read once."""
        if self.absent:
            return GpuState(0)
        with self.log.open("rb") as file:
            file.seek(self._read_bytes)
            fresh = file.read()
        complete_lines = fresh[: fresh.rfind(b"\n") + 1]
        self._read_bytes += len(complete_lines)
        samples = parse_samples(complete_lines.decode("utf-8", "replace"))
        inside = [sample for sample in samples if started_s <= sample.time_s <= ended_s]
        self._gpus.update(sample.index for sample in inside)
        state = condense(inside, foreign)
        return replace(state, slowed_by=(), foreign=()) if self._is_unsure else state

    def foreign_processes(self) -> tuple[str, ...]:
        """Compute processes on the GPUs right now: asked before a run starts, each one is somebody else's."""
        if self.absent or self._tool is None:
            return ()
        query = ["--query-compute-apps=gpu_uuid,pid,process_name", "--format=csv,noheader,nounits"]
        answer = ask([self._tool, *self._selection(), *query])
        return tuple(f"{program} (process {pid})" for _, pid, program in parse_processes(answer))

    def _selection(self) -> list[str]:
        return ["-i", self._devices] if self._devices else []

    def _start(self, reason: str) -> bool:
        """Start streaming with this name of the reason field; True once a sample has come."""
        query = f"--query-gpu={','.join((*_FIELDS, reason))}"
        asked = [str(self._tool), *self._selection(), query, "--format=csv,noheader,nounits", "-lms", str(_PERIOD_MS)]
        with self.log.open("wb") as out, self.errors.open("wb") as err:
            self._stream = subprocess.Popen(asked, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        deadline = time.monotonic() + _ANSWER_S
        while time.monotonic() < deadline and self._stream.poll() is None:
            if parse_samples(self.log.read_text("utf-8", "replace")):
                return True
            time.sleep(0.02)
        self.__exit__()
        return False


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None  # "[N/A]", "[Not Supported]"


def _mask(text: str) -> int:
    try:
        return int(text.strip(), 16)
    except ValueError:
        return 0
