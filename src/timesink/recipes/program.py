"""What a program is made of, as its own calls show: the modules it calls, its optimizers, loaders and losses.

Runs inside the program, on the standard library and the torch that the program itself has imported. Places of PyTorch
that a program may hold on to (`from torch.utils.checkpoint import checkpoint`) are wrapped once, right after torch was
imported; the wrappers do nothing until a switch asks.
"""

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Self
from weakref import WeakSet, WeakValueDictionary

_LOSSES_KEPT: Final = 64
_SAMPLED: Final = 1000  # numbers of a weight
_SHOWN_CALLS: Final = 200
_LIBRARIES: Final = ("site-packages", "dist-packages", "/lib/python", "<", str(Path(__file__).parents[1]))


class RunningProgram:
    """What was seen of the program so far. `fail` is called with an error that a switched-on change caused; where it
    takes the blame, the program goes on without the change. `check` (`MODULE:FUNCTION`) makes a number of what the root
    module returns, for programs that have no loss; without it the mean size of the first tensor's numbers is taken.
    """

    def __init__(self, fail: Callable[[BaseException], bool], check: str = "") -> None:
        self._fail, self._check = fail, check
        self._called: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._calls = Counter[int]()
        self._newest = 0
        self.first_output = 0
        """The call of the root module that the first of `losses` is of, in a program that has no loss."""
        self._roots: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._settled = 0
        self._kinds = frozenset[type]()
        self._steppers: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._stepped = Counter[type]()
        self._prepared: dict[Any, Any] = {}
        self._inside = threading.local()
        self.renews_model = False
        self.iterators: WeakSet[Any] = WeakSet()
        self.losses: list[Any] = []
        self.keeps_losses = True
        self.places: dict[str, str] = {}
        """Where the program makes its optimizer and loader and calls its model: `file:line`."""
        self.around: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {}
        self.loader_options: dict[str, Any] = {}
        self.autocasts = False
        self.watches_anomalies = False
        self.ignores_anomalies = False
        self.skips_checkpoints = False
        self.uses_checkpoints = False
        self.zeroes_gradients = False
        self.sets_to_none = False

    @property
    def has_shown_all(self) -> bool:
        """Whether no new module was called for as many calls as it took to see the newest."""
        return self._calls.total() >= max(_SHOWN_CALLS, 2 * self._newest)

    def settle_roots(self) -> None:
        """From now on the roots are those modules that have been called so far."""
        owned = {id(p) for made in self.optimizers for group in made.param_groups for p in group["params"]}
        sizes = {key: self._count(module, owned) for key, module in self._called.items()}
        largest = (key for key in sorted(sizes, key=lambda key: -sizes[key]) if sizes[key])
        self._roots = WeakValueDictionary((key, self._called[key]) for key in largest)
        self._settled, self._kinds = len(self._roots), frozenset(map(type, self._roots.values()))

    @property
    def optimizers(self) -> list[Any]:
        """Those that have stepped and that the program still has, in the order of their first steps. Like modules they
        are held by the program alone: one that copies its model for each task would not fit otherwise."""
        return list(self._steppers.values())

    @property
    def renews_optimizers(self) -> bool:
        """Whether the program makes optimizers anew as it goes: it had more of a kind than it has."""
        return any(times > sum(type(one) is kind for one in self.optimizers) for kind, times in self._stepped.items())

    @property
    def roots(self) -> list[Any]:
        """The outermost modules that own parameters (of the optimizers', where there are some), the largest first. They
        are settled when first asked for, which is after the first steps."""
        if not self._roots:
            self.settle_roots()
        return list(self._roots.values())

    @property
    def root(self) -> Any:
        """The first of the roots, or None."""
        return next(iter(self.roots), None)

    @staticmethod
    def _count(module: Any, owned: set[int]) -> int:
        return sum(p.numel() for p in module.parameters() if not owned or id(p) in owned)

    def prepare(self, key: Any, make: Callable[[], Any]) -> Any:
        """What a switch makes once and uses each time it is turned on."""
        if key not in self._prepared:
            self._prepared[key] = make()
        return self._prepared[key]

    @property
    def step_optimizer(self) -> Any:
        """The optimizer whose steps count: the first that stepped; None in a program that only infers."""
        return self.optimizers[0] if self.optimizers else None

    def weights(self) -> list[Any]:
        """Up to a thousand numbers of each weight that the optimizers update, as they are now."""
        owned = [p.detach() for made in self.optimizers for group in made.param_groups for p in group["params"]]
        whole = [p for p in owned if type(p).__name__ == "Tensor"]  # none that lies on several devices
        return [p.reshape(-1)[:: max(1, p.numel() // _SAMPLED)].float().clone() for p in whole]

    def install(self) -> None:
        """Wrap the places of PyTorch where the program shows what it is made of."""
        import torch
        from torch.optim.optimizer import Optimizer
        from torch.utils import checkpoint
        from torch.utils.data import DataLoader

        torch.nn.Module.__call__ = self._watched_call(torch.nn.Module.__call__)
        torch.autograd.backward = self._guarded(torch.autograd.backward, self._note_loss)
        checkpoint.checkpoint = self._watched_checkpoint(checkpoint.checkpoint)
        DataLoader.__iter__ = self._switchable(DataLoader.__iter__)
        DataLoader.__init__ = self._placed(DataLoader.__init__, "loader")
        Optimizer.__init__ = self._placed(Optimizer.__init__, "optimizer")
        hook = Optimizer.profile_hook_step
        Optimizer.profile_hook_step = staticmethod(lambda step: self._guarded(hook(step), self._note_optimizer))
        Optimizer.zero_grad = self._watched_zero_grad(Optimizer.zero_grad)
        torch.set_anomaly_enabled = self._watched_anomaly_mode(torch.set_anomaly_enabled)
        torch.Tensor.to = self._unwaited(torch.Tensor.to)
        torch.Tensor.cuda = self._unwaited(torch.Tensor.cuda)

    def _guarded(self, function: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        """The function; an error that a change caused ends the change, and this call is left out."""

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            note(*args, **kwargs)
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if not self._fail(error):
                    raise
                return None

        return called

    def _placed(self, original: Callable[..., Any], what: str) -> Callable[..., Any]:
        """The function; where the program first calls it is noted."""

        @wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            self.places.setdefault(what, find_place())
            return original(*args, **kwargs)

        return called

    def _note_loss(self, tensors: Any, *_: Any, **__: Any) -> None:
        loss = tensors[0] if isinstance(tensors, (tuple, list)) else tensors
        if self.keeps_losses and len(self.losses) < _LOSSES_KEPT and loss.numel() == 1:
            self.losses.append(loss.detach().clone())

    def _note_output(self, result: Any) -> None:
        """What a program without a loss returns, as one number."""
        if self._check:
            module, _, function = self._check.partition(":")
            self.losses.append(getattr(import_module(module), function)(result))
            return
        from torch.utils._pytree import tree_leaves

        tensors = (leaf for leaf in tree_leaves(result) if hasattr(leaf, "is_floating_point"))
        first = next((leaf for leaf in tensors if leaf.is_floating_point()), None)
        if first is not None:
            self.losses.append(first.detach().float().abs().mean())

    def _note_optimizer(self, optimizer: Any, *_: Any, **__: Any) -> None:
        if self._steppers.get(id(optimizer)) is not optimizer:
            self._steppers[id(optimizer)] = optimizer
            self._stepped[type(optimizer)] += 1

    def _watched_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The call of a module: outermost ones are remembered, and run inside what the switches put around them."""
        import torch

        program = self

        def called(self: Any, *args: Any, **kwargs: Any) -> Any:  # a profiler of stacks takes `self` for the module
            if (
                torch.compiler.is_compiling()
                or getattr(program._inside, "is_called", False)
                or torch._C._current_graph_task_id() != -1  # a checkpoint computes again, in the backward pass
            ):
                return original(self, *args, **kwargs)
            program._calls[id(self)] += 1
            if id(self) not in program._called:
                program._note_module(self)
            program._inside.is_called = True
            try:
                return program._run_module(original, self, args, kwargs)
            finally:
                program._inside.is_called = False

        return called

    def _note_module(self, module: Any) -> None:
        """An outermost module that is called for the first time. One of a root's kind that comes once a root has gone
        is the model made anew: it is a root as well."""
        self._called[id(module)], self._newest = module, self._calls.total()
        self.places.setdefault("model", find_place())
        if type(module) in self._kinds and len(self._roots) < self._settled:
            self.renews_model = True
            self._roots[id(module)] = module

    def _run_module(self, original: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
        """A call of an outermost module; where a change breaks it, once more without the change."""
        import torch

        self.autocasts |= torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")
        if id(module) not in self._roots:
            return original(module, *args, **kwargs)
        run = original
        for wrap in self.around.values():
            run = wrap(run)
        try:
            result = run(module, *args, **kwargs)
        except Exception as error:
            if not self._fail(error):
                raise
            result = original(module, *args, **kwargs)
        shows = not self._steppers and module is self.root
        if shows and self.keeps_losses and len(self.losses) < _LOSSES_KEPT:
            self.first_output = self.first_output or self._calls[id(module)]
            self._note_output(result)
        return result

    def _watched_checkpoint(self, original: Callable[..., Any]) -> Callable[..., Any]:
        own = {"use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop"}

        @wraps(original)
        def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            self.uses_checkpoints = True
            if self.skips_checkpoints:
                return function(*args, **{name: value for name, value in kwargs.items() if name not in own})
            return original(function, *args, **kwargs)

        return called

    def _watched_anomaly_mode(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def called(mode: bool, check_nan: bool = True) -> Any:
            self.watches_anomalies |= mode
            return original(mode and not self.ignores_anomalies, check_nan)

        return called

    def _watched_zero_grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def called(optimizer: Any, set_to_none: bool = True) -> Any:
            self.zeroes_gradients |= not set_to_none
            return original(optimizer, set_to_none or self.sets_to_none)

        return called

    def _unwaited(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A copy from pinned memory, which does not wait where a switch says so.

        A loader's forked worker has the switch too, and must not ask CUDA, which cannot be used there.
        """
        process = os.getpid()

        @wraps(original)
        def called(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            pins = "pin_memory" in self.loader_options and os.getpid() == process
            if pins and tensor.device.type == "cpu" and tensor.is_pinned():
                kwargs["non_blocking"] = True
            return original(tensor, *args, **kwargs)

        return called

    def _switchable(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Iterating a loader: its batches come as it says, or, while a switch is on, from another of the same data."""

        @wraps(original)
        def iterate(loader: Any) -> Iterator[Any]:
            batches = Batches(self, loader, original)
            self.iterators.add(batches)
            return batches

        return iterate


class Batches:
    """The batches of a loader. Those of the program's own iterator count; a switch may put another one before them."""

    def __init__(self, program: RunningProgram, loader: Any, iterate: Callable[[Any], Iterator[Any]]) -> None:
        self._program, self.loader, self._iterate = program, loader, iterate
        self._own: Iterator[Any] | None = None
        self._other: Iterator[Any] | None = None
        self.made_on_gpu: bool | None = None  # None until the program has got a batch
        self._options: dict[str, Any] = {}

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._begin_own(), name)

    def _begin_own(self) -> Iterator[Any]:
        """The program's own batches, begun when the first of them is asked for: to begin draws random numbers."""
        if self._own is None:
            self._own = self._iterate(self.loader)
        return self._own

    def __next__(self) -> Any:
        options = self._program.loader_options
        if not options:  # the other one, if any, stays ready
            batch = next(self._begin_own())
            if self.made_on_gpu is None:
                self.made_on_gpu = _holds_gpu_tensor(batch)
            return batch
        if self._other is None or options != self._options:
            self._options, self._other = dict(options), self._begin(options)
        try:
            return next(self._other)
        except StopIteration:
            self._other = self._begin(options)
            return next(self._other)

    def _begin(self, options: dict[str, Any]) -> Iterator[Any]:
        from torch.utils.data import DataLoader

        return self._iterate(DataLoader(self.loader.dataset, **loader_arguments(self.loader) | options))


def _holds_gpu_tensor(batch: Any) -> bool:
    """Whether any tensor of a batch lies on a device, in lists and dictionaries too."""
    if isinstance(batch, dict):
        return any(map(_holds_gpu_tensor, batch.values()))
    if isinstance(batch, list | tuple):
        return any(map(_holds_gpu_tensor, batch))
    return getattr(getattr(batch, "device", None), "type", "cpu") != "cpu"


def loader_arguments(loader: Any) -> dict[str, Any]:
    """What makes another loader over the same data with the same batches."""
    shared = {
        name: getattr(loader, name)
        for name in ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
    }
    if loader.batch_sampler is not None:
        return {**shared, "batch_sampler": loader.batch_sampler}
    return {**shared, "batch_size": loader.batch_size, "drop_last": loader.drop_last}


def find_place() -> str:
    """`file:line` of the innermost call in code that is the program's own; empty where all is a library's."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not any(part in name for part in _LIBRARIES):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def own_files() -> list[str]:
    """The Python files of the program's own that it has imported, the script among them."""
    names = {str(getattr(module, "__file__", None) or "") for module in [*sys.modules.values()]}
    return sorted(name for name in names if name.endswith(".py") and not any(part in name for part in _LIBRARIES))
