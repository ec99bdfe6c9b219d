"""Operations and compulsory bytes of framework operators, from their recorded shapes, dtypes and strides.

`work_of(operator)` is the entry. Counted: multiply-adds as two operations; every distinct input element read
once and every output element written once (stride-0 broadcasts count their storage once). Not counted: re-reads,
caches, workspace. Formulas are the textbook ones TraceLens uses too; each function names its own.
"""

from timesink.knowledge.work.arguments import Operator, Tensor, Work
from timesink.knowledge.work.table import work_of

__all__ = ["Operator", "Tensor", "Work", "work_of"]
