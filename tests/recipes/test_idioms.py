"""Training loops as people write them: each idiom is repaired, computes the same, and waits for fewer values."""

from pathlib import Path
from typing import Any

import pytest
from tests.recipes.repairing import proposed, repaired

torch = pytest.importorskip("torch")
nn = torch.nn

torch.set_num_threads(1)
START = """import copy
import torch
from torch import nn
class Bar:
    def set_description(self, text):
        self.text = text
    def set_postfix(self, **words):
        self.text = str(words)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [(torch.randn(3, 4), torch.tensor([0, 1, 0])) for _ in range(7)]
criterion = nn.CrossEntropyLoss()
"""
LOOP = """
{before}
for i, (x, y) in enumerate(batches):
    optimizer.zero_grad()
    outputs = model(x)
    loss = criterion(outputs, y)
    loss.backward()
{after}
    optimizer.step()
"""
READS = {
    "a sum told and begun again": (
        "running = 0.0\ntold = []",
        "running += loss.item()\nif i % 3 == 2:\n    last = running / 3\n    told.append(f'{last:.3f}')\n"
        "    running = 0.0",
    ),
    "a count of hits": ("hits = 0", "hits += (outputs.argmax(1) == y).sum().item()"),
    "a sum times the size": ("total = 0.0", "total += loss.item() * x.size(0)"),
    "a list in a dict": (
        "kept = {'loss': [], 'lr': []}",
        "kept['loss'].append(loss.detach().cpu().item())\nkept['lr'].append(1)",
    ),
    "a list that is added": ("losses = []", "losses += [(outputs > 0).float().mean().item()]"),
    "a name that is listed": ("losses = []", "value = loss.item()\nlosses.append(value)"),
    "a sum written out": ("total = 0.0", "total = total + float(loss)"),
    "a name listed, summed and told": (
        "losses, total = [], 0.0",
        "value = loss.item()\nlosses.append(value)\ntotal += value\nprint(i, value)",
    ),
    "a mean that each step tells": ("total = 0.0", "total = total + loss.item()\nprint(total / (i + 1))"),
    "two means that one bar tells": (
        "total, hits, bar = 0.0, 0, Bar()",
        "total += loss.item()\nhits += (outputs.argmax(1) == y).sum().item()\nbar.set_description(\n    'at %.3f | '\n"
        "    f'{hits} of '\n    '%d' % (total / (i + 1), len(batches)),\n)",
    ),
    "values told in strings of several rows": (
        "bar = Bar()",
        "bar.set_description(\n    f'loss {loss.item():.3f} '\n    f'classes {outputs.argmax(1).unique().numel()}'\n)",
    ),
    "a sum told by a bar with words": ("total, bar = 0.0, Bar()", "total += loss.item()\nbar.set_postfix(loss=total)"),
    "a sum told twice": ("total = 0.0", "total += loss.item()\nprint(total)\nx = x + 1\nprint(i, total / 2)"),
}  # fmt: skip
METER = """class Meter{bases}:
    def __init__(self):
        self.val, self.sum, self.count, self.avg = 0, 0, 0, 0
    def update(self, val, n=1):
{body}
meter = Meter()
"""
MEANS = "self.val = val\nself.sum += val * n\nself.count += n\nself.avg = self.sum / self.count"


def metered(body: str, loop: str, bases: str = "") -> tuple[str, str]:
    return METER.format(bases=bases, body="\n".join(f"        {row}" for row in body.splitlines())), loop


METERS = {
    "a meter told in each step": metered(MEANS, "meter.update(loss.item())\nprint(meter.avg)"),
    "a meter": metered(MEANS, "meter.update(loss.item(), x.size(0))"),
    "a meter told now and then": metered(
        MEANS, "meter.update(loss.item())\nif i % 3 == 2:\n    print(f'{meter.avg:.3f} {meter.val}')", "(object)"
    ),
    "a meter of hits": metered(MEANS, "meter.update((outputs.argmax(1) == y).float().mean().item(), n=3)"),
    "a smooth meter": metered("self.avg = 0.9 * self.avg + 0.1 * val", "meter.update(float(loss))"),
    "a meter with a guard": metered(
        "'''Sums.'''\nself.sum = self.sum + val\nself.count = self.count + n\n"
        "self.avg = self.sum / self.count if self.count > 0 else 0.0",
        "meter.update(loss.detach().cpu().item() / 2)",
    ),
    "a meter that is given a name": metered(MEANS, "value = loss.item()\nmeter.update(value)"),
    "a meter and a sum": ("total = 0.0\n" + metered(MEANS, "")[0], "meter.update(loss.item())\ntotal += loss.item()"),
}
READS |= METERS
LEFT = {
    "a meter that chooses": metered("if val > self.avg:\n    self.avg = val", "meter.update(loss.item())"),
    "a meter of the most": metered("self.avg = max(self.avg, val)", "meter.update(loss.item())"),
    "a meter whose choice is the value's": metered("self.sum += n if val > 0 else 0", "meter.update(loss.item())"),
    "a meter that lists": metered("self.rows = [*self.rows, val]", "meter.update(loss.item())"),
    "a meter that formats": metered("self.val = f'{val:.3f}'", "meter.update(loss.item())"),
    "a meter with two names of a sum": metered("self.val = self.sum\nself.sum += val", "meter.update(loss.item())"),
    "a meter that stops the loop": metered(MEANS, "meter.update(loss.item())\nif meter.avg > 3:\n    break"),
    "a meter of another class": metered(MEANS, "meter.update(loss.item())", "(Shown)"),
    "a meter of another file": ("from meters import Meter\nmeter = Meter()", "meter.update(loss.item())"),
    "a meter or another": (metered(MEANS, "")[0] + "if i: meter = Other()", "meter.update(loss.item())"),
    "a sum that ends the loop": ("total = 0.0", "total += loss.item()\nif total > 3:\n    break"),
    "an average that each step tells": ("smooth = 0.0", "smooth = 0.9 * smooth + 0.1 * loss.item()\nprint(smooth)"),
    "a sum that each step looks at": ("total, means = 0.0, []", "total += loss.item()\nmeans.append(total / (i + 1))"),
    "a name of a loss that is scaled since": (
        "losses = []",
        "value = loss.item()\nloss = loss / 2\nlosses.append(value)",
    ),
    "a list that a function reads": (
        "losses = []\ndef newest():\n    return losses[-1]",
        "losses.append(loss.item())\nlr = newest()",
    ),
    "a text that is listed": ("losses = []", "losses.append(f'{loss.item():.3f}')"),
    "a pair that is listed": ("losses = []", "losses.append((i, loss.item()))"),
    "a row that is listed": ("losses = []", "losses.append({'loss': loss.item()})"),
    "a choice that is listed": ("losses = []", "losses.append(loss.item() if i else None)"),
    "a text that grows": ("log = ''", "log = log + f'{loss.item():.3f} '"),
    "two reads in one sum": ("total = 0.0", "total += loss.item() + outputs.sum().item()"),
}
AVERAGES = {
    "average in a dict": (
        "shadow = {n: p.detach().clone() for n, p in model.named_parameters()}",
        "for n, p in model.named_parameters():\n    shadow[n].mul_(0.9).add_(p.detach(), alpha=0.1)",
    ),
    "average in a dict, made anew": (
        "shadow = {}\nfor n, p in model.named_parameters():\n    shadow[n] = p.data.clone()",
        "for n, p in model.named_parameters():\n    if p.requires_grad:\n"
        "        shadow[n] = (1.0 - 0.9) * p.data + 0.9 * shadow[n]",
    ),
    "copy of a mixture": (
        "slow = copy.deepcopy(model)",
        "for s, p in zip(slow.parameters(), model.parameters()):\n    s.data.copy_(0.1 * p.data + 0.9 * s.data)",
    ),
    "data of a mixture": (
        "slow = copy.deepcopy(model)",
        "for s, p in zip(slow.parameters(), model.parameters()):\n    s.data = s.data * 0.9 + p.data * 0.1",
    ),
    "a function of two modules": (
        "slow = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))\nslow.load_state_dict(model.state_dict())\n"
        "def soft(target, source, tau):\n    for t, s in zip(target.parameters(), source.parameters()):\n"
        "        t.data.copy_(tau * s.data + (1.0 - tau) * t.data)",
        "soft(slow, model, tau=0.1)",
    ),
    "momentum by number": (
        "momenta = [torch.zeros_like(p) for p in model.parameters()]",
        "for k, p in enumerate(model.parameters()):\n    momenta[k].mul_(0.9).add_(0.1 * p.grad)",
    ),
    "norm of gradients": (
        "norms = 0.0",
        "total = 0\nfor p in model.parameters():\n    norm = p.grad.detach().data.norm(2)\n"
        "    total += norm.item() ** 2\nnorms += total ** 0.5",
    ),
}
SHARED = {
    "a dict that holds the parameters": (
        "shadow = {n: p.data for n, p in model.named_parameters()}",
        "for n, p in model.named_parameters():\n    shadow[n].mul_(0.9).add_(p.data, alpha=0.1)",
    ),
    "an alias that loads its own state": (
        "slow = model\nslow.load_state_dict(model.state_dict())",
        "for s, p in zip(slow.parameters(), model.parameters()):\n    s.data = s.data * 0.9 + p.data * 0.1",
    ),
    "a function that is given one module twice": (
        "def soft(target, source, tau):\n    for t, s in zip(target.parameters(), source.parameters()):\n"
        "        t.data.copy_(tau * s.data + (1.0 - tau) * t.data)",
        "soft(model, model, 0.1)",
    ),
    "an alias": (
        "slow = model",
        "for s, p in zip(slow.parameters(), model.parameters()):\n    s.data = s.data * 0.9 + p.data * 0.1",
    ),
}


def program(before: str, after: str) -> str:
    return START + LOOP.format(before=before, after="\n".join(f"    {row}" for row in after.splitlines()))


def computed(text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], int]:
    """What the program's names hold at the end, and how many values were read before its last step."""
    reads, before_last = [], [0]
    read, step, held = torch.Tensor.item, torch.optim.SGD.step, dict[str, Any]()
    monkeypatch.setattr(torch.Tensor, "item", lambda value: reads.append(1) or read(value))
    monkeypatch.setattr(torch.optim.SGD, "step", lambda self: before_last.append(len(reads)) or step(self))
    exec(compile(text, "train.py", "exec"), held)
    monkeypatch.undo()
    found: dict[str, Any] = {}
    for name, one in held.items():
        if isinstance(one, nn.Module) and name != "criterion":
            found[name] = [value for p in one.parameters() for value in p.detach().flatten().tolist()]
        elif isinstance(one, (int, float)) or name in ("losses", "told", "means"):
            found[name] = one
        elif name == "meter":
            found[name] = [value for _, value in sorted(vars(one).items())]
        elif name in ("kept", "shadow", "momenta"):
            values = one.values() if isinstance(one, dict) else one
            found[name] = [v.flatten().tolist() if isinstance(v, torch.Tensor) else v for v in values]
    return found, before_last[-1]


def holds(before: Any, after: Any) -> None:
    """Equal but for rounding, and of the same kinds."""
    assert type(before) is type(after)
    if isinstance(before, list):
        assert len(before) == len(after)
        for one, other in zip(before, after, strict=True):
            holds(one, other)
    else:
        assert after == (pytest.approx(before, rel=1e-5, abs=1e-6) if isinstance(before, float) else before)


@pytest.mark.parametrize("name", [*READS, *AVERAGES])
def test_an_idiom_is_repaired_and_computes_the_same(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = program(*(READS | AVERAGES)[name])
    repaired_text, made = repaired(tmp_path, text)
    assert made == {"remove_sync" if name in READS else "list_operations"}
    before, reads = computed(text, monkeypatch)
    after, fewer = computed(repaired_text, monkeypatch)
    told_last = {"value", "last"}  # what is only told is of the last step in which it was
    for one in before.keys() & after.keys() - told_last:
        holds(before[one], after[one])
    assert before.keys() - after.keys() <= {"norm", "k"}  # the names of a loop that is none any more
    assert fewer < reads or not reads


@pytest.mark.parametrize("name", LEFT)
def test_what_the_loop_depends_on_is_left(tmp_path: Path, name: str) -> None:
    text = program(*LEFT[name])
    assert repaired(tmp_path, text) == (text, set())


@pytest.mark.parametrize("name", SHARED)
def test_lists_that_may_share_memory_are_only_offered(tmp_path: Path, name: str) -> None:
    found = [one for _, one in proposed(tmp_path, program(*SHARED[name]))]
    assert [one.fix for one in found] == ["list_operations"] and "share memory" in found[0].unproven


def test_a_loop_of_epochs_is_no_loop_of_steps(tmp_path: Path) -> None:
    text = "for epoch in range(9):\n    train(model)\n    test(model)\n    scheduler.step()\n    total += loss.item()\n"
    assert not proposed(tmp_path, text)
    assert len(proposed(tmp_path, text.replace("scheduler", "optimizer"))) == 2


LOOPS = {
    "pairs": "for x, y in batches:",
    "pairs in brackets": "for (x, y) in batches:",
    "a pair in a pair": "for _, (x, y) in zip(batches, batches):",
    "a pair first": "for (x, y), _ in zip(batches, batches):",
    "a list": "for [x, y] in batches:",
    "a bar over numbered ones": "bar = track(enumerate(batches))\nfor i, (x, y) in bar:",
    "numbers of a bar": "bar = trange(len(batches))\nfor i in bar:\n    x, y = batches[i]",
    "a number that is used otherwise": "for i in range(len(batches)):\n    x, y = batches[i]\n    i = 0",
    "a bar of itself": "from string import digits as n\nn = track(n)\nfor x in n:\n    x, y = batches[int(x) % 7]",
    "as long as there are some": "left = [*batches]\nwhile left:\n    x, y = left.pop(0)",
    "of a loop of epochs": "for epoch in range(1):\n  for x, y in batches:",
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_value_told_in_each_round_of_any_loop_is_told_rarely(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing counts the rounds yet: the tree proves what is put in."""
    head = f"track, trange = list, range\n{LOOPS[name]}"
    text = program("total = 0.0", "total += loss.item()\nprint('%.3f' % (total / 7))")
    text = text.replace("for i, (x, y) in enumerate(batches):", head)
    repaired_text, made = repaired(tmp_path, text)
    assert made == {"remove_sync"}
    (before, reads), (after, fewer) = computed(text, monkeypatch), computed(repaired_text, monkeypatch)
    holds(before["total"], after["total"])
    holds(before["model"], after["model"])
    assert fewer < reads


def test_an_attribute_that_other_files_may_read_is_only_offered(tmp_path: Path) -> None:
    body = program("", "self.losses.append(loss.item())").splitlines()
    text = "class Trainer:\n    def run(self):\n" + "\n".join(f"        {row}" for row in body)
    assert [one.unproven for _, one in proposed(tmp_path, text)] == ["another file may look at self.losses in the loop"]


def test_a_meter_that_something_else_has_is_only_offered(tmp_path: Path) -> None:
    before, loop = METERS["a meter"]
    text = program(before + "shown = [meter]", loop + "\nif i % 3 == 2:\n    print(*shown)")
    (found,) = [one for _, one in proposed(tmp_path, text)]
    assert found.unproven.startswith("meter is handed on in line") and found.fix == "remove_sync"


@pytest.mark.parametrize("other", ["meter = Meter()", "for meter in [Meter()]:\n        pass"])
def test_a_name_that_another_function_binds_itself_is_another(tmp_path: Path, other: str) -> None:
    """Unless it shares it."""
    before, loop = METERS["a meter"]
    apart = f"def apart():\n    {other}\n    return meter.avg\n"
    text = program(before, loop)
    assert repaired(tmp_path, apart + text)[1] == {"remove_sync"}
    assert repaired(tmp_path, apart.replace("    ", "    global meter\n    ", 1) + text)[1] == set()


def test_anomaly_mode_of_a_block_is_switched_off(tmp_path: Path) -> None:
    text = program("", "with torch.autograd.detect_anomaly():\n    pass")
    assert "with torch.autograd.set_detect_anomaly(False):" in repaired(tmp_path, text)[0]


def test_a_teacher_that_is_made_to_evaluate_records_nothing(tmp_path: Path) -> None:
    text = program("teacher = nn.Linear(4, 2).eval()", "aim = teacher(x)")
    assert repaired(tmp_path, text)[1] == {"no_gradients"}
