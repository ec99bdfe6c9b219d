"""What attention written out costs in 16 bits, by hand: scores that are cast, and products that become misaligned."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tables import trace_of

from timesink.measures.kernels.fusion import scores_beside
from timesink.measures.kernels.shapes import misaligned_if_narrow
from timesink.model.trace import Trace
from timesink.whatif.change import Case, Selection
from timesink.whatif.changes import kernels as fixes


def attention(keys: int) -> Trace:
    """A product of 64 places by so many keys in fp32, a softmax of 40 us and a second product: 50 us each."""
    product = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>"
    return trace_of(f"""
| device_ops | kind | name | start_us | end_us | correlation |
| scores | kernel | `{product}` | 0 | 50 | 1 |
| softmax | kernel | `void softmax_warp_forward<float, float, float, 9, false, false>` | 50 | 90 | 2 |
| values | kernel | `{product}` | 90 | 140 | 3 |
| other | kernel | `{product}` | 200 | 300 | 4 |

| api_calls | name | start_us | end_us | correlation |
| scores | cudaLaunchKernel | -40 | -39 | 1 |
| softmax | cudaLaunchKernel | -30 | -29 | 2 |
| values | cudaLaunchKernel | -20 | -19 | 3 |
| other | cudaLaunchKernel | -10 | -9 | 4 |

| host_ops | name | start_us | end_us | input_shapes | input_dtypes |
| scores | aten::bmm | -42 | -38 | `[[8,64,64],[8,64,{keys}]]` | `["float","float"]` |
| values | aten::bmm | -22 | -18 | `[[8,64,{keys}],[8,{keys},64]]` | `["float","float"]` |
| other | aten::mm | -12 | -8 | `[[64,64],[64,64]]` | `["float","float"]` |
""")


@pytest.mark.parametrize(("keys", "misaligned"), [(752, []), (750, [0, 2]), (748, [0, 2])])
def test_rows_of_products_in_two_bytes_start_at_sixteen_or_are_misaligned(keys: int, misaligned: list[int]) -> None:
    assert misaligned_if_narrow(attention(keys))[0, 0].tolist() == misaligned


def test_the_softmax_counts_as_a_share_of_the_products_beside_it() -> None:
    (scores,) = scores_beside(attention(752))
    assert scores.rows.tolist() == [0, 2]
    assert scores.usual.tolist() == pytest.approx([40 / 100] * 2)


def test_casts_around_a_softmax_go_onto_its_products_and_none_takes_longer_than_before() -> None:
    (scores,) = scores_beside(attention(752))
    products = Selection((0, 0), {"fp32": scores.rows, "streaming": scores.rows[:0]})
    plain, costly = fixes.autocast(products), fixes.autocast(products, scores=scores)
    for case, casts in ((Case.CAUTIOUS, 1.5), (Case.EXPECTED, 1.25), (Case.HOPEFUL, 0.5)):
        both = (change.kernels.keep[case.value] for change in (plain, costly))
        assert [more - less for less, more in zip(*both, strict=True)] == pytest.approx([0.4 * casts] * 2)
    assert fixes.autocast(products, True, scores).kernels.keep[1].tolist() == pytest.approx([0.1, 0.1])


def test_products_that_two_bytes_misalign_keep_two_fifths_of_their_time() -> None:
    own = Selection((0, 0), {"fp32_misaligned": np.array([4]), "fp32": np.array([7])})
    assert [keep.tolist() for keep in fixes.autocast(own).kernels.keep] == [[0.67, 0.3], [0.42, 0.17], [0.25, 0.05]]
