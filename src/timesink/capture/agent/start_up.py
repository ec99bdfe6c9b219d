"""Where the time from the process's start to its first steady steps goes, by looking at the main thread's stack.

No profiler records it: profilers begin once the program has imported them. The stack is looked at every few
milliseconds; the time since the look before belongs to the first of `KINDS` that a frame is of. A call into C that
keeps the interpreter to itself (a library that is loaded) is seen as it returns, in the frame that made it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, NamedTuple

_LOOK_S: Final = 0.005
_BLIND_S: Final = 0.25  # of a stretch without a look: longer, its two ends must agree on what went on in it
_LONGEST_S: Final = 1800.0
_IMPORTING: Final = "<frozen importlib"
_MOST: Final = 40  # parts; the others are told together by kind
_NAME: Final = "timesink"
INTERPRETER, PROGRAM, UNSEEN = "interpreter", "the program's own code", "not seen"
IMPORTS: Final = "imports"


class _Kind(NamedTuple):
    """Frames of a kind: parts of their files, and names of their functions, any where there are none."""

    name: str
    files: tuple[str, ...]
    functions: tuple[str, ...] = ()


KINDS: Final = (
    _Kind("search of algorithms", ("triton/runtime/autotuner.py", "torch/_inductor/select_algorithm.py")),
    _Kind("compilation", ("torch/_dynamo/convert_frame.py", "torch/_inductor/compile_fx.py",
                          "torch/_inductor/async_compile.py", "triton/compiler/", "torch/utils/cpp_extension.py")),
    _Kind("the GPU's context", ("torch/cuda/__init__.py",), ("_lazy_init", "init", "is_available", "device_count")),
    _Kind("processes joined", ("torch/distributed/distributed_c10d.py", "torch/distributed/rendezvous.py"),
          ("init_process_group", "_new_process_group_helper", "rendezvous", "_env_rendezvous_handler")),
    _Kind("weights and checkpoints", ("torch/serialization.py", "safetensors/", "huggingface_hub/",
                                      "transformers/modeling_utils.py", "torch/distributed/checkpoint/"),
          ("load", "save", "from_pretrained", "load_file", "safe_open", "hf_hub_download", "snapshot_download")),
    _Kind("first batches", ("torch/utils/data/", "datasets/", "torchvision/datasets/", "torchvision/transforms/")),
    _Kind("steps before they are steady", ("torch/optim/", "torch/nn/modules/module.py", "torch/_tensor.py",
                                           "torch/autograd/"),
          ("step", "wrapper", "_call_impl", "_wrapped_call_impl", "backward", "_engine_run_backward")),
    _Kind("the model moved", ("torch/nn/modules/module.py",), ("to", "cuda", "cpu", "half", "bfloat16", "_apply")),
    _Kind("the model built", ("torch/nn/",), ("__init__", "reset_parameters", "kaiming_uniform_", "uniform_")),
    _Kind("the optimizer made", ("torch/optim/",), ("__init__", "add_param_group")),
)  # fmt: skip
"""What may own a moment, the first of them that is on the stack first: rare work before what is usual."""
_LIBRARIES: Final = ("site-packages/", "dist-packages/")
_STDLIB: Final = str(Path(os.__file__).parent)
_OURS: Final = str(Path(__file__).resolve().parents[2])


@cache
def _kind_of(code: CodeType) -> int:
    """The place in `KINDS` of a frame that runs this code; past them where it is of none."""
    file, name = code.co_filename.replace("\\", "/"), code.co_name
    if name == "<module>":  # which runs only while it is imported
        return len(KINDS)
    for at, (_, files, functions) in enumerate(KINDS):
        if name in (functions or (name,)) and any(part in file for part in files):
            return at
    return len(KINDS)


def owner(frame: FrameType | None) -> tuple[str, str]:
    """What a stack is at: its kind, and which package is imported, or the place in the program.

    What a library's module does while it is imported is its import; a module of the program is the program."""
    inwards: list[CodeType] = []
    while frame is not None:
        inwards.insert(0, frame.f_code)
        frame = frame.f_back
    is_import = False
    for code in inwards:
        if _IMPORTING in code.co_filename:
            is_import = True
        elif is_import and code.co_name == "<module>":
            if package := _package(code):
                return IMPORTS, package
            is_import = False
    at = min(map(_kind_of, inwards), default=len(KINDS))
    if is_import or at < len(KINDS):
        return IMPORTS if is_import else KINDS[at].name, ""
    return PROGRAM, next((place for code in reversed(inwards) if (place := own_place(code))), "")


def own_place(code: CodeType) -> str:
    """``train.py: make_batches`` of the program's own frames."""
    file = code.co_filename
    if file.startswith(("<", _STDLIB, _OURS)) or any(part in file for part in _LIBRARIES):
        return ""
    return f"{Path(file).name}: {code.co_name}"


def _package(code: CodeType) -> str:
    """The library that a module's own code is of, such as torch; '' of the program's own modules."""
    file = code.co_filename.replace("\\", "/")
    for part in (*_LIBRARIES, f"{_STDLIB}/", f"{_OURS}/"):
        if part in file:
            return file.partition(part)[2].partition("/")[0].removesuffix(".py")
    return ""


class StartUpWatch:
    """Looks at the main thread from now until `end`; what came before, since the process began, is the interpreter."""

    def __init__(self) -> None:
        age_s = _age_s()
        self._main, self._process = threading.main_thread().ident, os.getpid()
        self._spent_ns: dict[tuple[str, str], int] = defaultdict(int)
        self._spent_ns[INTERPRETER, ""] = round(age_s * 1e9)
        self._before, self._looked_ns = (PROGRAM, ""), time.perf_counter_ns()
        self._is_over, self._lock = threading.Event(), threading.Lock()
        threading.Thread(target=self._watch, name=_NAME, daemon=True).start()

    def _watch(self) -> None:
        until = time.monotonic() + _LONGEST_S
        while not self._is_over.wait(_LOOK_S) and time.monotonic() < until:
            frame = sys._current_frames().get(self._main or 0)
            found = owner(frame)
            del frame  # else what its variables hold lives on
            self._look(found)

    def _look(self, found: tuple[str, str]) -> None:
        with self._lock:
            if self._is_over.is_set():
                return
            now_ns = time.perf_counter_ns()
            since_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
            agree = found[0] == self._before[0]
            self._spent_ns[found if agree or since_ns < _BLIND_S * 1e9 else (UNSEEN, "")] += since_ns
            self._before = found

    def end(self) -> list[tuple[str, str, int]]:
        """The first steady step begins: kind, detail and nanoseconds, the longest first. They sum to the time since the
        process began. Nothing in another process than the one that was watched."""
        if os.getpid() != self._process:
            return []
        if not self._is_over.is_set():
            self._look(owner(sys._getframe(1)))
            self._is_over.set()
        parts = sorted(((*key, ns) for key, ns in self._spent_ns.items() if ns), key=lambda part: (-part[2], part))
        rest: dict[str, int] = defaultdict(int)
        for kind, _, spent_ns in parts[_MOST:]:
            rest[kind] += spent_ns
        return [*parts[:_MOST], *((kind, "others", ns) for kind, ns in rest.items())]


def _age_s() -> float:
    """Seconds since this process began; 0 where the system does not say."""
    try:
        text = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
        ticks = int(text.rpartition(")")[2].split()[19])
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"), 0.0)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
