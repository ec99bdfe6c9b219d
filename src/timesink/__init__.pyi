"""What `timesink` offers, for type checkers and editors; `__init__.py` loads each name on first use."""

from timesink.capture.in_program import annotate as annotate
from timesink.capture.in_program import profile as profile
from timesink.capture.in_program import step as step
from timesink.capture.stage_log import stages as stages
from timesink.capture.trainer import handler as handler
from timesink.capture.trainer import recorder as recorder
from timesink.notebook import diagnose as diagnose
from timesink.notebook import gate as gate
from timesink.notebook import idle as idle
from timesink.notebook import kernels as kernels
from timesink.notebook import plan as plan
from timesink.notebook import summary as summary
from timesink.notebook import try_ as try_
from timesink.notebook import verify_change as verify_change
from timesink.notebook import what_if as what_if
from timesink.notebook.trace import Trace as Trace
from timesink.notebook.trace import compare as compare
from timesink.notebook.trace import read as read

__version__: str
__all__ = [
    "Trace",
    "__version__",
    "annotate",
    "compare",
    "diagnose",
    "gate",
    "handler",
    "idle",
    "kernels",
    "plan",
    "profile",
    "read",
    "recorder",
    "stages",
    "step",
    "summary",
    "try_",
    "verify_change",
    "what_if",
]
