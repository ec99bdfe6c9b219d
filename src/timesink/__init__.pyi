"""What `timesink` offers, for type checkers and editors; `__init__.py` loads each name on first use."""

from timesink.capture.in_program import annotate as annotate
from timesink.capture.in_program import profile as profile
from timesink.capture.in_program import step as step
from timesink.diagnosis.engine import diagnose as diagnose
from timesink.model.trace import Trace as Trace
from timesink.notebook import compare as compare
from timesink.readers import read as read

__version__: str
__all__ = ["Trace", "__version__", "annotate", "compare", "diagnose", "profile", "read", "step"]
