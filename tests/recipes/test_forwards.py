"""What a forward pass builds anew is kept where nothing can change it, offered where something may, else left."""

from pathlib import Path

import pytest
from benchmarks.fixes.scripts import SCRIPTS
from tests.recipes.repairing import repaired

from timesink.recipes.forwards import find_rebuilt
from timesink.recipes.lists import find_norm_sums
from timesink.recipes.source import Source
from timesink.recipes.table import proposals

torch = pytest.importorskip("torch")
from tests.recipes.test_faults import computed  # noqa: E402  # which needs it too

HEAD = """import torch
from torch import nn
LONG = 8
class M(nn.Module):
    def forward(self, x, other=None):
        b, t, _ = x.shape
"""
KEPT = [
    "m = torch.ones(t, t, device=x.device).tril()\nreturn x @ m",
    "m = torch.arange(LONG, device=x.device)\nreturn x + m",
    "m = torch.arange(t, device=x.device)[None]\nreturn x + m",
    "later = torch.ones(t, t).bool()\nm = torch.zeros(t, t, dtype=x.dtype).masked_fill(later, -1.0)\nreturn x @ m",
    "m = torch.tensor([1.0, 2.0, 3.0], device=x.device)\nreturn torch.dot(x, m)",
]
OFFERED = [
    "m = torch.ones(t, t)\ns = x @ x\ns += m\nreturn s",
    "m = torch.ones(t, t)\nv = m.view(-1)\nv.add_(1)\nreturn x",
    "m = torch.ones(t, t)\nreturn m",
    "m = torch.ones(t, t)\nreturn self.inner(x, m)",
    "m = torch.ones(t, t)\nwith torch.inference_mode():\n    return x @ m",
]
LEFT = [
    "m = torch.ones(t, t).tril()\nm[0] = 1\nreturn x * m",
    "m = torch.ones_like(x).tril()\nreturn x * m",
    "m = torch.rand(t, t)\nreturn x + m",
    "m = torch.arange(self.n)\nreturn x + m",
    "if other:\n    m = torch.arange(t)\nelse:\n    m = torch.ones(t)\nreturn x + m",
    "m = torch.ones(t, t)\nm = m.tril()\nreturn x + m",
    "t = 3\nm = torch.ones(t, t)\nreturn x + m",
    "m = torch.ones(t, t, requires_grad=True)\nreturn x + m",
]
SOURCES = ("masks_rebuilt", "gradients_clipped_one_by_one", "printed_loss", "final_loss_read", "collected_each_step",
           "weights_averaged_one_by_one", "evaluated_every_step", "anomalies_detected")  # fmt: skip


def source_of(body: str) -> Source:
    return Source(Path("model.py"), HEAD + "".join(f"        {line}\n" for line in body.splitlines()))


@pytest.mark.parametrize("body", KEPT)
def test_what_only_sizes_make_is_kept_by_the_module(body: str) -> None:
    source = source_of(body)
    (found,) = find_rebuilt(source, 0)
    assert not found.unproven
    held: dict[str, object] = {}
    exec(compile(source.edited(found.replacements), "model.py", "exec"), held)
    assert not list(find_rebuilt(Source(source.path, source.edited(found.replacements)), 0))


@pytest.mark.parametrize("body", OFFERED)
def test_what_something_may_change_is_only_offered(body: str) -> None:
    (found,) = find_rebuilt(source_of(body), 0)
    assert found.unproven


@pytest.mark.parametrize("body", LEFT)
def test_what_is_not_the_same_is_left(body: str) -> None:
    assert not list(find_rebuilt(source_of(body), 0))


def test_for_other_sizes_it_is_made_again() -> None:
    source = source_of(KEPT[0])
    (found,) = find_rebuilt(source, 0)
    held: dict[str, type] = {}
    exec(compile(source.edited(found.replacements), "model.py", "exec"), held)
    model = held["M"]()
    for length in (3, 5, 3):
        x = torch.ones(1, length, length)
        assert torch.equal(model(x), x @ torch.ones(length, length).tril())


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_a_script_is_repaired_and_computes_the_same(tmp_path: Path, name: str) -> None:
    (script,) = (one for one in SCRIPTS if one.name == name)
    faulty = script.program().replace("range(100000)", "range(4)").replace("200_000", "10")
    text, made = repaired(tmp_path, faulty)
    assert made == {script.fix}
    before, after = computed(faulty), computed(text)
    for value in before.keys() & after.keys():
        assert after[value] == pytest.approx(before[value], rel=2e-5, abs=1e-6), value


def test_sums_of_squares_are_of_gradients_after_the_backward_pass() -> None:
    loop = "for x in data:\n    loss = net(x)\n    loss.backward()\n    total = {}\n    optimizer.step()\n"
    sums = ["sum(p.grad.norm() ** 2 for p in net.parameters())", "sum([p.grad.pow(2).sum() for p in net.parameters()])"]
    for text in sums:
        assert len(list(find_norm_sums(Source(Path("a.py"), loop.format(text)), 0))) == 1
    for text in (
        "sum(p.square().sum() for p in net.parameters())",
        "sum(p.grad.norm() for p in net.parameters())",
        "sum(p.grad.square().mean() for p in net.parameters())",
        "sum(p.grad.norm(1) ** 2 for p in net.parameters())",
        "sum(p.grad.norm() ** 2 for p in listed)",
    ):
        assert not list(find_norm_sums(Source(Path("a.py"), loop.format(text)), 0))


LOOP = """import torch
from torch.nn import functional as F
torch.manual_seed(0)
{made}
x, out = torch.randn(4, 8), []
for step in range(3):
    {cast}
    out.append((x @ held.t() * (step + 1)).sum())
"""
SAME = [
    ("table = torch.randint(9, (5, 8))", "held = table.float()"),
    ("table = torch.randn(5, 8)", "held = F.normalize(table, dim=1)"),
    ("table = torch.randn(5, 8).to('cpu')", "held = table / table.norm(dim=1, keepdim=True)"),
    ("table = torch.ones(5, 8, dtype=torch.bool)", "held = table.to(x.dtype)"),
    ("table, = (3,)\nmask = torch.rand(5, 8)", "held = torch.softmax(mask, 1)"),
]
OTHER = [
    ("table = torch.randn(5, 8)", "held = table.half().float() + step"),
    ("table = torch.randn(5, 8, requires_grad=True)", "held = F.normalize(table, dim=1)"),
    ("table = torch.nn.Parameter(torch.randn(5, 8))", "held = F.normalize(table, dim=1)"),
    ("table = torch.randn(5, 8)", "held = F.dropout(table)"),
    ("table = torch.randn(5, 8)", "table.add_(1); held = table.float()"),
    ("table = torch.randn(5, 8)\nview = table[0]", "held = table.double().float(); view += 1"),
    ("table = torch.randn(5, 8)", "held = table"),
    ("table = torch.randn(5, 8)", "held = table.float(); held[0] = step"),
]


@pytest.mark.parametrize(("made", "cast"), SAME)
def test_what_is_cast_or_normed_alike_in_each_round_is_made_once(made: str, cast: str, tmp_path: Path) -> None:
    text = LOOP.format(made=made, cast=cast)
    new, fixes = repaired(tmp_path, text)
    assert fixes == {"build_once"} and f"\n{cast}\nfor step" in new
    both: list[dict[str, list[float]]] = [{}, {}]
    for held, one in zip(both, (text, new), strict=True):
        exec(compile(one, "train.py", "exec"), held)
    assert both[0]["out"] == both[1]["out"]


@pytest.mark.parametrize(("made", "cast"), OTHER)
def test_what_may_differ_from_round_to_round_is_not_made_once(made: str, cast: str, tmp_path: Path) -> None:
    assert repaired(tmp_path, LOOP.format(made=made, cast=cast.replace("; ", "\n    ")))[1] == set()


TRAINED = [
    "loss = (net(x) - x).square().mean()",
    "loss = F.mse_loss(net(x), x)",
    "loss = criterion(net(x), x)",
    "loss = net(torch.ones(4, 8)).sum()",
    "loss = (x * weight).sum()",
    "loss = (x.float() @ weight.t()).norm()",
    "loss = criterion(net(torch.zeros(4, 8)), torch.ones(4, 8))",
]


@pytest.mark.parametrize("loss", TRAINED)
@pytest.mark.parametrize("within", ["", "def train(net, criterion, x, weight):"])
def test_what_is_trained_is_not_even_offered(loss: str, within: str, tmp_path: Path) -> None:
    """It is another in each round, though nothing in the loop binds the model anew."""
    text = TRAINING.format(loss=loss)
    if within:
        text = text.replace("for step", f"{within}\n  for step").replace("\n    ", "\n      ")
    (tmp_path / "train.py").write_text(text)
    assert not [one for _, one in proposals([tmp_path / "train.py"], ["build_once"], {})]


TRAINING = """import torch
from torch.nn import functional as F
net, criterion = torch.nn.Linear(8, 8), torch.nn.MSELoss()
x, weight = torch.randn(4, 8), torch.randn(8, requires_grad=True)
optimizer = torch.optim.SGD([*net.parameters(), weight], lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    {loss}
    loss.backward()
    optimizer.step()
"""
