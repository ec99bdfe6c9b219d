"""What Python and C++ frames say: which library is at work, and for what memory is allocated below them.

Frames read "file(line): function", separated by ";"; C++ frames without a file are the bare function.

`is_own` tells which source files are the program's own: not Python's standard library, nor a library that programs
install. Profilers write paths relative to the folders on `sys.path`, so that `site-packages` is often not in them;
libraries are then known by the name of their top folder.
"""

import re
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from timesink.knowledge import Pattern, Patterns

_FILE: Final = Patterns(__file__, globals())

if TYPE_CHECKING:

    def __getattr__(name: str) -> Pattern: ...


# Frames with any of these are not the user's own.
LIBRARIES: Final = ("/torch/", "torch/", "site-packages/", "dist-packages/", "/contextlib.py(")

_OF_STACKS: Final = "workspace optimizer backward recompute sharding reducer cast kv_cache weights module data python"
STACKS: Final = {name: vars(_FILE)[name.upper()] for name in _OF_STACKS.split()}
CALL_LINES: Final = "timesinkCallLines"
"""The member of a trace to which timesink's own capture adds lines of calls (`capture.agent.call_lines`)."""


_PACKAGES: Final = r"(?:^|[/\\])(?:site-packages|dist-packages|lib[/\\]python3(?:\.\d+)?|python3\.\d+)[/\\]"
_INSTALLED: Final = re.compile(
    rf"{_PACKAGES}|^<|^$"
    r"|(?:^|[/\\])[a-z2-7]{2}[/\\]c[a-z2-7]{51}\.py$"  # code that TorchInductor generated
    r"|[/\\]timesink[/\\](?:capture|trials)[/\\]"  # our agent, installed to be edited
)
_LIBRARIES: Final = frozenset(_FILE.words["INSTALLED_PACKAGES"])


_UP_TO_PACKAGES: Final = re.compile(rf"^.*{_PACKAGES}")
_BELOW_ENGINES: Final = frozenset(
    ("torch", "torchvision", "torchaudio", "functorch", "triton", "numpy", "jax", "jaxlib")
)


@lru_cache(maxsize=65536)
def is_engine(file: str) -> bool:
    """Whether a path is of what runs models for a program, such as vLLM or Transformers: where none of the program's
    own files is on any stack, these are as near to it as there is."""
    package = _top(_UP_TO_PACKAGES.sub("", file))
    return bool(package) and package[0] != "<" and package not in _BELOW_ENGINES | sys.stdlib_module_names


@lru_cache(maxsize=65536)
def is_own(file: str) -> bool:
    """Whether a path is of the program itself: `train.py` is, `torch/nn/functional.py` and `threading.py` are not."""
    if _INSTALLED.search(file):
        return False
    top = _top(file)
    return top not in _LIBRARIES and top not in sys.stdlib_module_names


def _top(file: str) -> str:
    """The package or module that a relative path begins with."""
    return re.split(r"[/\\]", file)[0].removesuffix(".py")
