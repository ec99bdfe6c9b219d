"""Settings that differ between two captures, those first that could make the change that explains most."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from timesink.verify.outcomes import ChangeKind, StepChange, Suspect

_PROGRAM: Final = "argv|argument|command|config|git|commit|program|module|torch|transformers|accelerate|lightning"
_CHOICES: Final = "flash|attention|tf32|precision|determin|benchmark"
_LIBRARIES: Final = f"torch|triton|cudnn|cublas|cuda|rocm|hip|miopen|driver|profiler|gpu|{_CHOICES}"
_HOST: Final = "python|thread|omp_|mkl_|cpu|host|kernel|arch|affinity|numa|cgroup"
_COULD: Final[Mapping[ChangeKind, str]] = {
    ChangeKind.SLOWER: "gpu|clock|power|memory|mig|driver|busy|temperature|ecc|mps",
    ChangeKind.OTHER_KERNELS: _LIBRARIES,
    ChangeKind.LAUNCHES: f"{_PROGRAM}|{_CHOICES}|compile|graph|blocking|anomaly|{_HOST}",
    ChangeKind.OTHER_SHAPES: f"{_PROGRAM}|batch|shape|length|ranks",
    ChangeKind.OTHER_OPERATORS: f"{_PROGRAM}|{_LIBRARIES}|compile",
    ChangeKind.WAITS: f"{_PROGRAM}|blocking|anomaly|debug",
    ChangeKind.WAITING: f"{_PROGRAM}|{_HOST}|worker|alloc|stack|profiler|busy|blocking|anomaly|compile",
    ChangeKind.COMMUNICATION: "nccl|rccl|rank|gpu|topology|driver|torch|argv|git|p2p|ib_",
    ChangeKind.COPIES: f"{_PROGRAM}|pin|driver|numa|pcie",
}
"""Parts of the names of settings, of torch's manifest or of a trace, that each kind of change can come from."""


def suspects(differing: Mapping[str, tuple[str, str]], made: Sequence[StepChange]) -> tuple[Suspect, ...]:
    """Every setting that differs, once: what could make the first of the changes, then the others, each by name."""
    could = re.compile(_COULD[made[0].kind], re.IGNORECASE) if made else None
    found = [Suspect(name, *pair, bool(could and could.search(name))) for name, pair in differing.items()]
    return tuple(sorted(found, key=lambda one: (not one.can_cause, one.name)))
