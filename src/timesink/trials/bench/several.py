"""Several operators at once: attention, the step of an optimizer, one operation on a list of tensors."""

from functools import partial
from typing import Any, Final

import torch

from timesink.trials.bench.operators import NARROW, TYPES, tensor
from timesink.trials.bench.timing import Question, host_us, on_gpu, tf32, timed_us

_ATTENDS: Final = 8  # launches of attention written out, and with its gradients
_ATTENDS_TRAINED: Final = 30
_AT_ONCE: Final = 24  # tensors of a loop over them that are timed together, of so many launches each
_LAUNCHES: Final = 14
_FLAGS: Final = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}
_STEPS, _LOOPS = 30, 12
_HALF: Final = 0.5


def of_attention(question: Question) -> dict[str, list[float]]:
    """Attention written out, in one kernel, and in one kernel and 16 bits: microseconds forward and backward. Where the
    mask may be a causal one, one kernel is told so, but as `masked`."""
    with tf32(question["tf32"]):
        masked = ("masked",) if question.get("causal") else ()
        found = {form: _attention_us(question, form) for form in ("recorded", "fused", *masked)}
        return found | {form: _attention_us(question, form) for form in question["forms"]}


def _attention_us(question: Question, form: str) -> list[float]:
    heads, queries, keys, width = question["sizes"]
    kind = NARROW.get(form, TYPES[question["type"]])
    query = tensor([1, heads, queries, width], None, kind).requires_grad_()
    key, value = (tensor([1, heads, keys, width], None, kind).requires_grad_() for _ in range(2))
    mask = tensor([1, 1, queries, keys], None, kind) if question["masked"] else None

    def written() -> Any:
        scores = torch.matmul(query, key.transpose(-1, -2)) * width**-0.5
        return torch.matmul(torch.softmax(scores if mask is None else scores + mask, -1), value)

    causal = bool(question.get("causal")) and form not in ("recorded", "masked")

    def fused() -> Any:
        own = None if causal else mask
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=own, is_causal=causal)

    call = written if form == "recorded" else fused
    with torch.no_grad():
        forward = timed_us([call], _ATTENDS)
    if not question["trains"]:
        return [forward, 0.0]
    gradient = torch.ones_like(call())
    both = timed_us([lambda: torch.autograd.grad(call(), (query, key, value), gradient)], _ATTENDS_TRAINED)
    return [forward, max(both - forward, 0.0)]


def of_optimizer(question: Question) -> dict[str, list[float]]:
    """A step of an optimizer in each form: microseconds of the device, and three percentiles of the host's."""
    made = getattr(torch.optim, question["name"])
    options = {"lr": 1e-6, **({"momentum": 0.9} if question["momentum"] else {})}
    found = {}
    for form in ("recorded", *question["forms"]):
        kind = question["form"] if form == "recorded" else form
        weights = [
            torch.zeros(shape, device="cuda" if on_gpu() else "cpu", requires_grad=True) for shape in question["sizes"]
        ]
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        size = _AT_ONCE if kind == "loop" else len(weights)
        parts = [weights[at : at + size] for at in range(0, len(weights), size)]
        times = [timed_us([made(part, **options, **_FLAGS[kind]).step], _AT_ONCE * _LAUNCHES) for part in parts]
        whole = made(weights, **options, **_FLAGS[kind])
        whole.step()
        found[form] = [sum(times), *host_us(whole.step, _LOOPS if kind == "loop" else _STEPS)]
    return found


def of_list(question: Question) -> dict[str, list[float]]:
    """An operation on tensors one by one, and on the list of them: the same of both."""
    name = question["name"].removeprefix("aten::")
    single, every = getattr(torch.ops.aten, name), getattr(torch, f"_foreach_{name}")
    sizes, extra = question["sizes"], [_HALF] if question["scalar"] else []
    lists = [[tensor(shape, None, torch.float32) for shape in sizes] for _ in range(question["operands"])]

    def loop(first: int = 0, last: int = len(sizes)) -> None:
        for number in range(first, last):
            single(*(own[number] for own in lists), *extra)

    def listed() -> Any:
        return every(*lists, *extra)

    many = 4 * _AT_ONCE
    parts = [partial(loop, at, min(at + many, len(sizes))) for at in range(0, len(sizes), many)]
    with torch.no_grad():
        return {
            "recorded": [sum(timed_us([part], many) for part in parts), *host_us(loop, _LOOPS)],
            "list": [timed_us([listed], _ATTENDS), *host_us(listed, _STEPS)],
        }
