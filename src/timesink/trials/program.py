"""What a program is made of, as its own calls show: the module that is trained, its optimizers, loaders and losses.

Runs inside the program, on the standard library and the torch that the program itself has imported. Places of PyTorch
that a program may hold on to (`from torch.utils.checkpoint import checkpoint`) are wrapped once, right after torch was
imported; the wrappers do nothing until a switch asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any
from weakref import WeakSet

_LOSSES_KEPT = 64


class RunningProgram:
    """What was seen of the program so far. `fail` is called with an error that a switched-on change caused; where it
    takes the blame, the program goes on without the change."""

    def __init__(self, fail: Callable[[BaseException], bool]) -> None:
        self._fail = fail
        self._called: dict[int, Any] = {}
        self._root: Any = None
        self._prepared: dict[Any, Any] = {}
        self._inside = threading.local()
        self.optimizers: list[Any] = []
        self.iterators: WeakSet[Any] = WeakSet()
        self.losses: list[Any] = []
        self.around: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {}
        self.loader_options: dict[str, Any] = {}
        self.skips_checkpoints = False
        self.uses_checkpoints = False
        self.zeroes_gradients = False
        self.sets_to_none = False
        self.copies_without_waiting = False

    @property
    def root(self) -> Any:
        """The outermost module that owns most parameters of the optimizers; without an optimizer, the largest module.
        It is settled when it is first asked for, which is after the first step."""
        if self._root is not None:
            return self._root
        owned = {id(p) for optimizer in self.optimizers for group in optimizer.param_groups for p in group["params"]}
        modules = list(self._called.values())
        self._root = max(modules, default=None, key=lambda module: self._size(module, owned))
        return self._root

    @staticmethod
    def _size(module: Any, owned: set[int]) -> int:
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
        hook = Optimizer.profile_hook_step
        Optimizer.profile_hook_step = staticmethod(lambda step: self._guarded(hook(step), self._note_optimizer))
        Optimizer.zero_grad = self._watched_zero_grad(Optimizer.zero_grad)
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

    def _note_loss(self, tensors: Any, *_: Any, **__: Any) -> None:
        loss = tensors[0] if isinstance(tensors, (tuple, list)) else tensors
        if len(self.losses) < _LOSSES_KEPT and loss.numel() == 1:
            self.losses.append(loss.detach().clone())

    def _note_optimizer(self, optimizer: Any, *_: Any, **__: Any) -> None:
        if not any(optimizer is known for known in self.optimizers):
            self.optimizers.append(optimizer)

    def _watched_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The call of a module: outermost ones are remembered, and run inside what the switches put around them."""
        import torch

        def called(module: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or getattr(self._inside, "is_called", False):
                return original(module, *args, **kwargs)
            self._called.setdefault(id(module), module)
            self._inside.is_called = True
            try:
                return self._run_module(original, module, args, kwargs)
            finally:
                self._inside.is_called = False

        return called

    def _run_module(self, original: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
        """A call of an outermost module; where a change breaks it, once more without the change."""
        if module is not self._root:
            return original(module, *args, **kwargs)
        run = original
        for wrap in self.around.values():
            run = wrap(run)
        try:
            return run(module, *args, **kwargs)
        except Exception as error:
            if not self._fail(error):
                raise
            return original(module, *args, **kwargs)

    def _watched_checkpoint(self, original: Callable[..., Any]) -> Callable[..., Any]:
        own = {"use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop"}

        @wraps(original)
        def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            self.uses_checkpoints = True
            if self.skips_checkpoints:
                return function(*args, **{name: value for name, value in kwargs.items() if name not in own})
            return original(function, *args, **kwargs)

        return called

    def _watched_zero_grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def called(optimizer: Any, set_to_none: bool = True) -> Any:
            self.zeroes_gradients |= not set_to_none
            return original(optimizer, set_to_none or self.sets_to_none)

        return called

    def _unwaited(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A copy from pinned memory, which does not wait where a switch says so."""

        @wraps(original)
        def called(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self.copies_without_waiting and tensor.device.type == "cpu" and tensor.is_pinned():
                kwargs.setdefault("non_blocking", True)
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
        self._options: dict[str, Any] = {}

    def __iter__(self) -> Batches:
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
        if not options:
            self._other = None
            return next(self._begin_own())
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


def loader_arguments(loader: Any) -> dict[str, Any]:
    """What makes another loader over the same data with the same batches."""
    shared = {
        name: getattr(loader, name)
        for name in ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
    }
    if loader.batch_sampler is not None:
        return {**shared, "batch_sampler": loader.batch_sampler}
    return {**shared, "batch_size": loader.batch_size, "drop_last": loader.drop_last}
