"""Patterns beside which an edit would change what is computed, stored, printed or ordered: none of them is made."""

import ast
from pathlib import Path

import pytest
from tests.recipes.repairing import proposed

from timesink.recipes.source import Proposal

HEAD = """import torch
import torch.nn.functional as F

device = "cpu"
model = torch.nn.Linear(8, 8)
opt = torch.optim.SGD(model.parameters(), 0.1)
history = []
"""
LOOP = """
for step in range(10):
{lines}
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    opt.step()
{after}
"""


def program(lines: str = "", after: str = "", before: str = "") -> str:
    parts = (("\n".join(f"    {row}" for row in text.splitlines()) or "    pass") for text in (lines, after))
    inside, later = parts
    return HEAD + before + LOOP.format(lines=inside, after=later)


BUILT = "held = torch.zeros(10)\n"
KEEPS = {
    "added to by another name": BUILT + "other = held\nother += step\nhistory.append(other.sum().item())",
    "a view written": BUILT + "part = held[:2]\npart += 1",
    "a view by view": BUILT + "flat = held.view(-1)\nflat += 1",
    "a view by reshape": BUILT + "flat = held.reshape(2, 5)\nflat.add_(1)",
    "a transposed view": BUILT + "flat = held.t()\nflat.add_(1)",
    "rows walked over": BUILT + "for row in held:\n    row += 1",
    "rows numbered": BUILT + "for at, row in enumerate(held):\n    row.add_(at)",
    "rows zipped": BUILT + "for row, other in zip(held, range(10)):\n    row.add_(other)",
    "in a list": BUILT + "all_of = [held]\nall_of[0] += 1",
    "in a tuple": BUILT + "pair = held, 1\npair[0].add_(1)",
    "in a dict": BUILT + "by_name = {'a': held}\nby_name['a'] += 1",
    "in a set of pairs": BUILT + "by_name = dict(a=held)\nby_name['a'].add_(1)",
    "handed to a function of the file that writes": BUILT + "change(held)",
    "handed to a function that keeps": BUILT + "keep(held)",
    "handed to a function that hands on": BUILT + "pass_on(held)",
    "handed to an unknown function": BUILT + "history.extend(map(str, [report(held)]))",
    "handed to a method": BUILT + "store.put(held)",
    "listed": BUILT + "history.append(held)",
    "listed by a sum": BUILT + "history += [held]",
    "in place by a keyword": BUILT + "F.relu(held, inplace=True)",
    "in place by a module": BUILT + "torch.nn.ReLU(inplace=True)(held)",
    "written by out": BUILT + "torch.add(held, 1, out=held)",
    "as an array": BUILT + "held.numpy()[0] += 1",
    "as an array by another name": BUILT + "array = held.numpy()\narray += 1",
    "as an array of a view": BUILT + "held[1:].numpy().fill(2)",
    "shared by detach": BUILT + "other = held.detach()\nother += 1",
    "shared by its data": BUILT + "held.data.add_(1)",
    "shared by to": BUILT + "other = held.to(device)\nother += 1",
    "shared by float": BUILT + "other = held.float()\nother += 1",
    "shared by contiguous": BUILT + "other = held.contiguous()\nother.mul_(2)",
    "shared by expand": BUILT + "other = held.expand(3, 10)\nother[0, 0] = 1",
    "unpacked": BUILT + "first, *rest = held\nfirst += 1",
    "in a slice of another": BUILT + "history[:] = [held]",
    "an attribute of another": BUILT + "model.held = held",
    "a buffer": BUILT + "model.register_buffer(f'b{step}', held)",
    "a parameter": BUILT + "model.weight.grad = held",
    "chosen": BUILT + "other = held if step else None\nother is None or other.add_(1)",
    "by or": BUILT + "other = None or held\nother.add_(1)",
    "by a walrus": BUILT + "print((other := held).sum())\nother += 1",
    "by a lambda": BUILT + "change = lambda x=held: x.add_(1)\nchange()",
    "by globals": BUILT + "globals()['held'] += 1",
    "through torch": BUILT + "torch.add(held, 1, out=held.view(-1))",
    "of what is trained": "held = torch.ones(8, 8) * model.weight\nhistory.append(held.sum().item())",
    "of what a list holds": "held = torch.tensor(history)\nhistory.append(len(held))",
    "of an array": "held = torch.from_numpy(table)\nother_table[0] += 1\nprint(held.sum())",
    "of an object's attribute": "held = torch.full((3,), state.value)\nstate.tick()\nprint(held.sum())",
    "of a random number": "held = torch.full((3,), torch.rand(1).item())\nprint(held.sum())",
    "yielded": BUILT + "consume(held for _ in range(1))",
}
FUNCTIONS = """
def change(x):
    x += 1


def keep(x):
    history.append(x)


def pass_on(x):
    change(x)


"""
WAITS = {
    "mpi": "comm.Allreduce(buffer.data_ptr())",
    "mpi by import": "comm.Send(buffer)",
    "cupy": "cupy.asarray(buffer).sum()",
    "a launch by ctypes": "library.launch(buffer.data_ptr())",
    "a queue": "queue.put(buffer)",
    "a pipe": "pipe.send(buffer)",
    "dlpack": "other = to_dlpack(buffer)",
    "a clock": "began = time.time()",
    "another clock": "began = default_timer()",
    "a date": "began = datetime.now()",
    "a renamed clock": "began = clock()",
    "a clock of an object": "timer.tick()",
    "a stream": "with torch.cuda.stream(side): buffer.add_(1)",
    "an event": "event.record()",
    "a stream handed over": "side.wait_stream(torch.cuda.current_stream())",
    "a copy": "host.copy_(buffer, non_blocking=True)",
    "an array": "print(buffer.numpy())",
    "shared memory": "buffer.share_memory_()",
    "a graph": "graph.replay()",
    "an extension": "torch.ops.mine.launch(buffer)",
    "a thread": "done.set()",
    "a profiler": "profiler.step()",
    "a meter of time": "meter.lap()",
    "nccl": "torch.distributed.all_reduce(buffer)",
    "pinned": "host = buffer.pin_memory()",
}
IMPORTS = {
    "mpi by import": "from mpi4py import MPI\ncomm = MPI.COMM_WORLD\n",
    "cupy": "import cupy\n",
    "a clock": "import time\n",
    "another clock": "from timeit import default_timer\n",
    "a date": "from datetime import datetime\n",
    "a renamed clock": "from time import perf_counter as clock\n",
    "a thread": "import threading\ndone = threading.Event()\n",
}
TOLD = {
    "a walrus": "print(v := loss.item())\nhistory.append(v)",
    "a walrus in a text": "print(f'{(v := loss.item())}')\nhistory.append(v)",
    "a tick": "score = evaluate(model)\nprint(score, tracker.tick())",
    "a tick in a text": "score = evaluate(model)\nprint(f'{score} {tracker.tick()}')",
    "a pop": "print(loss.item(), history.pop())",
    "a read of a file": "print(loss.item(), next(lines))",
    "printed to a file": "print(loss.item(), file=log)",
    "written to a file": "log.write(f'{loss.item()}')",
    "a board": "writer.add_scalar('loss', loss.item(), step)",
    "a board of an evaluation": "score = evaluate(model)\nwriter.add_scalar('score', score, step)",
    "a tracker": "wandb.log({'loss': loss.item()})",
    "a logger": "logger.info(loss.item())",
    "metrics": "trainer.log_metrics(loss.item())",
    "an evaluation that saves": "score = save_and_evaluate(model)\nprint(score)",
    "an evaluation that counts": "score = count_and_evaluate(model)\nprint(score)",
    "an evaluation that leaves the mode": "score = mode_and_evaluate(model)\nprint(score)",
    "an evaluation of elsewhere": "score = others.evaluate(model)\nprint(score)",
    "an evaluation that lists": "score = list_and_evaluate(model)\nprint(score)",
}
EVALUATIONS = """
best = [0.0]


def evaluate(net):
    return net(torch.ones(4, 8)).mean()


def save_and_evaluate(net):
    torch.save(net.state_dict(), "best.pt")
    return net(torch.ones(4, 8)).mean()


def count_and_evaluate(net):
    best[0] += 1
    return net(torch.ones(4, 8)).mean()


def mode_and_evaluate(net):
    net.eval()
    return net(torch.ones(4, 8)).mean()


def list_and_evaluate(net):
    history.append(1)
    return net(torch.ones(4, 8)).mean()


"""


def made(folder: Path, text: str, *fixes: str) -> list[Proposal]:
    ast.parse(text)
    return [one for _, one in proposed(folder, text) if one.fix in fixes and not one.unproven]


@pytest.mark.parametrize("name", KEEPS)
def test_what_may_be_kept_or_changed_is_not_built_once(name: str, tmp_path: Path) -> None:
    assert made(tmp_path, program(KEEPS[name], before=FUNCTIONS), "build_once") == []


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_that_something_may_need_stays(name: str, tmp_path: Path) -> None:
    before = IMPORTS.get(name, "") + "buffer = torch.zeros(3)\n"
    text = program(after=f"torch.cuda.synchronize()\n{WAITS[name]}", before=before)
    assert not any("where nothing needs it" in one.reason for one in made(tmp_path, text, "remove_sync"))


@pytest.mark.parametrize("name", TOLD)
def test_what_more_than_a_reader_hears_of_is_not_told_rarely(name: str, tmp_path: Path) -> None:
    text = program(after=TOLD[name], before=EVALUATIONS)
    assert made(tmp_path, text, "remove_sync", "evaluate_rarely") == []


READ = {
    "an operand": BUILT + "print((held + step).sum())",
    "a mask": "held = torch.triu(torch.ones(8, 8), 1)\nprint(torch.ones(8, 8).masked_fill(held == 0, 0.0).sum())",
    "a view that is read": BUILT + "print((held.view(2, 5)[0] * 2).sum())",
    "handed to a function that reads": BUILT + "print(read(held))",
    "handed to a forward pass that reads": BUILT + "print(layer(torch.ones(10), held))",
    "of a device": "held = torch.zeros(10, device=device)\nprint((held * 2).sum())",
}
READERS = """
def read(x):
    return (x * 2).sum()


class Layer(torch.nn.Module):
    def forward(self, x, mask):
        return (x * mask).sum()


layer = Layer().to(device)
"""


@pytest.mark.parametrize("name", READ)
def test_what_is_only_read_is_built_once(name: str, tmp_path: Path) -> None:
    """The lists are not so short that nothing is made."""
    assert len(made(tmp_path, program(READ[name], before=READERS), "build_once")) == 1


def test_a_wait_that_nothing_needs_goes(tmp_path: Path) -> None:
    assert len(made(tmp_path, program(after="torch.cuda.synchronize()"), "remove_sync")) == 1


def test_what_only_a_reader_hears_of_is_told_rarely(tmp_path: Path) -> None:
    text = program(after="print(step, loss.item())\nscore = evaluate(model)\nprint(score)", before=EVALUATIONS)
    assert {one.fix for one in made(tmp_path, text, "remove_sync", "evaluate_rarely")} == {
        "remove_sync",
        "evaluate_rarely",
    }


SORTED = {
    "another axis": "held.sort(dim=1)[0][:2]",
    "another axis of three": "held.sort(dim=0)[0][:, :2]",
    "the last axis by its rows": "held.sort()[0][:2]",
    "the places": "held.sort()[1][..., :2]",
    "the places by name": "held.sort().indices[..., :2]",
    "but the last": "held.sort()[0][..., :-1]",
    "from the second": "held.sort()[0][..., 1:3]",
    "every other": "held.sort()[0][..., :4:2]",
    "the last": "held.sort()[0][..., -2:]",
    "one": "held.sort()[0][..., 0]",
    "all": "held.sort()[0][..., :]",
    "a number of elsewhere": "held.sort()[0][..., :step]",
    "an axis of elsewhere": "held.sort(dim=step)[0][:, :2]",
    "an order of elsewhere": "held.sort(descending=step > 1)[0][..., :2]",
    "in a stable order": "held.sort(stable=True)[0][..., :2]",
    "in an order that is kept": "torch.sort(held, stable=True, dim=0)[0][:2]",
    "into others": "torch.sort(held, out=(first, second))[0][..., :2]",
    "what is drawn": "torch.rand(4).sort()[0][..., :2]",
    "what is taken": "history.pop().sort()[0][..., :2]",
    "a new axis": "held.sort(dim=0)[0][None, :2]",
    "rows picked": "held.sort(dim=1)[0][held > 0, :2]",
    "named axis": "held.sort(dim='rows')[0][:2]",
    "words of elsewhere": "held.sort(**order)[0][..., :2]",
    "values of elsewhere": "held.sort(*order)[0][..., :2]",
    "sorted by another": "held.argsort()[0][..., :2]",
}


@pytest.mark.parametrize("name", SORTED)
def test_a_sort_of_which_more_or_something_else_is_read_stays(name: str, tmp_path: Path) -> None:
    before = "held = first = second = torch.zeros(4, 4)\norder = {}\n"
    assert made(tmp_path, program(f"print({SORTED[name]})", before=before), "use_a_part") == []


@pytest.mark.parametrize(
    "cut",
    ["held.sort()[0][..., :2]", "held.sort(-1, True).values[..., 0:3]", "torch.sort(held, dim=1)[0][:, :9]",
     "torch.sort(held, 0, descending=True).values[:3]"],
)  # fmt: skip
def test_the_best_of_a_sort_are_found_in_its_order(cut: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    (proposal,) = made(tmp_path, program(f"print({cut})", before="held = torch.zeros(4, 4)\n"), "use_a_part")
    held = torch.tensor([[3.0, float("nan"), 3.0, -1.0], [2.0, float("inf"), 0.0, 7.0], [5.0] * 4])
    said = {"torch": torch, "held": held}
    assert torch.equal(torch.nan_to_num(eval(cut, said)), torch.nan_to_num(eval(proposal.replacements[0].text, said)))
