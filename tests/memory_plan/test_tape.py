"""The tape against arithmetic by hand."""

from __future__ import annotations

from timesink.memory_plan.blocks import Tape, Value


def chain() -> Tape:
    """x -> a (100 bytes, keeps x) -> b (10 bytes, keeps its result)."""
    tape, x = Tape(), Value("x", 40)
    a = tape.op("a", (x,), 100, saves=(x,))
    tape.op("b", (a,), 10, saves_output=True)
    return tape


def test_saved_storages_count_once_however_many_operators_keep_them() -> None:
    tape, x = Tape(), Value("x", 40)
    for name in ("q", "k", "v"):
        tape.op(name, (x,), 10, saves=(x,))
    assert tape.saved_bytes == 40
    assert tape.saved() == [("x", 40)]


def test_forward_holds_what_is_saved_and_what_is_still_used() -> None:
    """x 40 is kept; a 100 and b 10 are there together when b is made: 150."""
    assert chain().forward_peak_bytes() == 150


def test_without_training_the_input_belongs_to_the_caller_and_nothing_is_kept() -> None:
    assert chain().forward_peak_bytes(is_trained=False) == 110


def test_backward_peaks_where_a_wide_gradient_meets_the_next() -> None:
    """Gradient of b 10, of a 100 beside it: 110; then b's 10 and its saved 10 go, and x's 40 comes: 130."""
    assert chain().backward_peak_bytes() == 130


def test_an_addition_hands_its_gradient_on() -> None:
    """y = x + f(x): x's gradient is y's own storage, so only f's gradient is allocated, and added in place."""
    tape, x = Tape(), Value("x", 8)
    f = tape.op("f", (x,), 8, saves=(x,))
    tape.op("add", (x, f), 8, passes_grad=True)
    # y's gradient 8, f's 8; going through f makes another 8 for x, to be added: 24.
    assert tape.backward_peak_bytes() == 24


def test_a_weight_gradient_stays_and_its_extra_goes() -> None:
    tape, x = Tape(), Value("x", 8)
    tape.op("linear", (x,), 8, weight_grad_bytes=100, backward_extra_bytes=50)
    assert tape.backward_peak_bytes() == 8 + 8 + 150
