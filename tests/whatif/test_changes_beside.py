"""What fixes make of the kernels that measures find, by what is chosen beside them in a plan. Measures are given."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.whatif.test_changes_by_hand import chosen

from timesink.fixes import Beside
from timesink.fixes import replays as made_of
from timesink.model.intervals import Intervals
from timesink.whatif import Range, Selection, Target, Touches
from timesink.whatif.changes.host import CaptureGraph, RemoveSyncs, ScaleHost
from timesink.whatif.changes.kernels import ShortenKernels

TRACE: Any = SimpleNamespace()


def beside(*fixes: str, rules: tuple[str, ...] = (), eased: bool = False) -> Beside:
    return Beside(frozenset(fixes), eased, frozenset(rules))


def roles(kernels: Selection) -> dict[str, list[int]]:
    return {role: rows.tolist() for role, rows in kernels.groups.items()}


@pytest.mark.parametrize(
    ("fixes", "padded", "compiled"),
    [((), False, False), (("tf32",), False, False), (("padding",), True, False), (("compile",), True, True),
     (("compile_graph", "padding"), True, True)],
)  # fmt: skip
def test_in_16_bits_misaligned_products_are_as_others_where_they_are_padded(
    monkeypatch: pytest.MonkeyPatch, fixes: tuple[str, ...], padded: bool, compiled: bool
) -> None:
    found = {"wide": [chosen(tf32=[1, 7], misaligned=[3]), chosen(tf32=[2], fp32=[4])], "other": [chosen(tf32=[9])]}
    monkeypatch.setattr(made_of, "four_byte_kernels", lambda _: found)
    monkeypatch.setattr(made_of, "autocast", lambda kernels, *how: (roles(kernels), *how))
    first = {"tf32": [1, 3, 7]} if padded else {"tf32": [1, 7], "misaligned": [3]}
    wanted = [(first, compiled, False), ({"tf32": [2], "fp32": [4]}, compiled, False)]
    assert list(made_of.to_16_bits_beside(TRACE, beside(*fixes), "wide")) == wanted


@pytest.mark.parametrize(
    ("fixes", "rules", "checked"),
    [((), (), False), ((), ("debugging_left_on",), True), (("drop_debugging",), ("debugging_left_on",), False),
     (("drop_debugging",), (), False)],
)  # fmt: skip
def test_gradients_are_checked_until_that_is_switched_off(
    monkeypatch: pytest.MonkeyPatch, fixes: tuple[str, ...], rules: tuple[str, ...], checked: bool
) -> None:
    monkeypatch.setattr(made_of, "four_byte_kernels", lambda _: {"wide": [chosen(tf32=[1])]})
    monkeypatch.setattr(made_of, "autocast", lambda _, compiled, checked: (compiled, checked))
    assert list(made_of.to_16_bits_beside(TRACE, beside(*fixes, rules=rules), "wide")) == [(False, checked)]


@pytest.mark.parametrize(
    ("fix", "narrow"), [("bf16", True), ("bf16_weights", True), ("fp16", True), ("tf32", False), ("compile", False)]
)
def test_attention_is_fused_as_in_16_bits_beside_these(monkeypatch: pytest.MonkeyPatch, fix: str, narrow: bool) -> None:
    monkeypatch.setattr(made_of, "unfused_attention", lambda _: [chosen(product_wide=[1], between=[2])])
    monkeypatch.setattr(made_of, "fuse_attention", lambda kernels, launches: (roles(kernels), launches))
    found = list(made_of.fuse_attention_beside(TRACE, beside(fix, eased=True)))
    assert found == [({"product" if narrow else "product_wide": [1], "between": [2]}, True)]


def test_a_model_is_compiled_but_for_loops_over_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [chosen(other=[0, 2, 7], longest=[5])]
    for name in ("layers", "misaligned_products"):
        monkeypatch.setattr(made_of, name, lambda _: [])
    monkeypatch.setattr(made_of, "eager_runs", lambda _: runs)
    monkeypatch.setattr(made_of, "compiled", lambda kernels, launches: [(roles(kernels), launches)])
    monkeypatch.setattr(made_of, "parameter_loops", lambda _: [])
    assert list(made_of.compile_model(TRACE, beside())) == [({"other": [0, 2, 7], "longest": [5]}, False)]
    loops = [SimpleNamespace(rows=np.array([0, 3])), SimpleNamespace(rows=np.array([5]))]
    monkeypatch.setattr(made_of, "parameter_loops", lambda _: loops)
    assert list(made_of.compile_model(TRACE, beside(eased=True))) == [({"other": [2, 7], "longest": []}, True)]


@pytest.mark.parametrize(
    ("obstacle", "eased", "captured"),
    [
        (None, True, 1),
        ("allocates", True, 1),
        ("data_parallel", True, 0),
        (None, False, 0),
        ("data_parallel", False, 0),
    ],
)
def test_a_graph_is_captured_where_launches_count_and_only_memory_stands_in_the_way(
    monkeypatch: pytest.MonkeyPatch, obstacle: str | None, eased: bool, captured: int
) -> None:
    monkeypatch.setattr(made_of, "graph_obstacle", lambda _: obstacle and SimpleNamespace(kind=obstacle, name="a call"))
    assert made_of.capture_beside(TRACE, beside(eased=eased)) == (CaptureGraph(),) * captured


def test_small_grids_are_spread_where_a_rule_found_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_of, "repeated_calls", lambda _: [])
    monkeypatch.setattr(made_of, "small_grids", lambda _: [chosen(best=[0.2, 0.5, 0.9])])
    assert [len(list(made_of.batch_calls_beside(TRACE, beside(rules=rules)))) for rules in ((), ("small_grids",))] == [
        0, 1,
    ]  # fmt: skip


def test_named_kernels_to_cast_are_products_or_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = pl.DataFrame(
        {"row": [3, 4, 6, 8], "member": [True, True, False, True], "family": ["gemm", "other", "gemm", "gemv"]}
    )
    monkeypatch.setattr(made_of, "_chosen", lambda *_: [((0, 1), kernels)])
    monkeypatch.setattr(made_of, "with_casts", lambda _, kernels: kernels)
    (found,) = made_of.named_to_cast("tf32", TRACE, Target("kernel", "x"))
    assert (found.device, roles(found)) == ((0, 1), {"tf32": [3, 8], "streaming": [4]})


def test_why_there_are_no_streams_is_asked_of_what_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_of, "_members", lambda _, target: f"members of {target.pattern}")
    monkeypatch.setattr(made_of, "why_no_runs", lambda _, members: f"asked of {members}")
    assert made_of.no_streams(TRACE, None) == "asked of None"
    assert made_of.no_streams(TRACE, Target("kernel", "x")) == "asked of members of x"


def test_needless_work_goes_with_all_of_its_host_time_and_if_asked_its_waits() -> None:
    work: Any = SimpleNamespace(device=(0, 2), rows=np.array([4, 5]), host={(1, 1): Intervals.one(3, 9)})
    kernels, host = made_of.drop_extra_work(work).changes
    assert isinstance(kernels, ShortenKernels)
    assert (kernels.device, kernels.rows.tolist(), kernels.keep[0].tolist()) == ((0, 2), [4, 5], [0.0, 0.0])
    assert isinstance(host, ScaleHost)
    assert (host.factor, host.target.windows) == (0.0, work.host)
    _, waits, _ = made_of.drop_extra_work(work, waits=True).changes
    assert isinstance(waits, RemoveSyncs)
    assert waits.target == host.target


def test_the_first_of_several_units_does_the_work_of_all_of_them() -> None:
    """Rows 2 and 7 take 3, 2 and 1.5 times as long, rows 4 and 9 go, and with them their host time and waits."""
    work = SimpleNamespace(device=(0, 2), rows=np.array([4, 9]), host={(1, 1): Intervals.one(3, 9)})
    found: Any = SimpleNamespace(work=work, first=np.array([7, 2]), longer=lambda _: (3.0, 2.0, 1.5))
    kernels, waits, host = made_of.batch_units(TRACE, found).changes
    assert isinstance(kernels, ShortenKernels)
    assert (kernels.device, kernels.rows.tolist()) == ((0, 2), [2, 4, 7, 9])
    assert [share.tolist() for share in kernels.keep] == [[n, 0.0, n, 0.0] for n in (3.0, 2.0, 1.5)]
    assert isinstance(host, ScaleHost) and isinstance(waits, RemoveSyncs)
    assert (host.factor, host.target.windows, waits.target) == (0.0, work.host, host.target)


def test_a_kernel_that_may_take_longer_in_one_case_touches_both_sides() -> None:
    keep = tuple(np.array(shares) for shares in ([0.5, 1.5], [0.5, 0.9], [0.1, 0.2]))
    assert ShortenKernels((0, 0), np.array([1, 2]), keep).touches is Touches.BOTH
    shorter = ShortenKernels((0, 0), np.array([1, 2]), keep[1:] + keep[1:2])
    assert (shorter.touches, shorter.launches_saved) == (Touches.DEVICE, Range(0.0, 0.0, 0.0))
