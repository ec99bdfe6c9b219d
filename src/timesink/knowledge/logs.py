"""What torch.compile writes into logs (`TORCH_LOGS`, `TORCH_TRACE`): how a line begins, and what each message says."""

from typing import TYPE_CHECKING, Final

from timesink.knowledge import Pattern, Patterns
from timesink.knowledge.ranges import COMPILED_GRAPH

_FILE: Final = Patterns(__file__, globals())

if TYPE_CHECKING:

    def __getattr__(name: str) -> Pattern: ...


GRAPH_KEY: Final = Pattern(
    rf'"key": ?"(?P<key>{COMPILED_GRAPH})"', "key of a compiled graph in the cache",
    '"key": "fq2qocr2katu3xr5mwv7qvrpa3sk6jzudnk27ctfg25gox7ohmtp"', '"key": "short"',
)  # fmt: skip
BODY_OF_CODE: Final = Pattern(
    r"(?s)^ *def (?:call|partition_\d+)\(.*?(?=^def benchmark_|\Z)",
    "the function of a graph's code that calls its kernels",
    "def call(self, args):\n    f()", "def helper(args):",
)  # fmt: skip
