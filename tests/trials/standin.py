"""A package that stands for torch where only the course of a trial is looked at: it is imported in no time.

Gradients that are filled with zeros take 20 ms of a step. What `torch.compile` makes is called first for as long as
STANDIN_COMPILES says.
"""

from pathlib import Path

TORCH = """
import os, sys, time, types
__version__ = "2.0"

def _module(name, **values):
    made = types.ModuleType(f"torch.{name}")
    made.__dict__.update(values)
    sys.modules[f"torch.{name}"] = made
    parent, _, last = name.rpartition(".")
    setattr(sys.modules[f"torch.{parent}"] if parent else sys.modules["torch"], last, made)
    return made

float32 = types.SimpleNamespace(is_floating_point=True)
bfloat16, float16 = object(), object()

class Tensor:
    device, dtype, is_cuda, shape, grad = types.SimpleNamespace(type="cpu"), float32, False, (1,), None
    value = 1.0
    def to(self, *a, **k): return self
    def cuda(self, *a, **k): return self
    def numel(self): return 1
    def dim(self): return 1
    def detach(self): return self
    clone = float = abs = mean = detach
    def reshape(self, *a): return self
    def __getitem__(self, at): return self
    def __sub__(self, other): return self
    def __float__(self): return self.value
    def is_pinned(self): return False
    def backward(self): autograd.backward(self)

class _Module:
    def __init__(self): self.weight = Tensor()
    def __call__(self, *a): return self.forward(*a)
    def parameters(self): return [self.weight]
    def modules(self): return [self]
    def children(self): return []

class Optimizer:
    def __init__(self, params, defaults=None):
        self.param_groups, self.state = [{"params": list(params)}], {}
        if not hasattr(type(self).step, "hooked"):
            type(self).step = Optimizer.profile_hook_step(type(self).step)
            type(self).step.hooked = True
    @staticmethod
    def profile_hook_step(step):
        def stepped(self, *a): return step(self, *a)
        return stepped
    def zero_grad(self, set_to_none=True):
        if not set_to_none: time.sleep(0.02)

class SGD(Optimizer):
    def step(self): time.sleep(0.01)

class _Profile:
    def __init__(self, *a, **k): pass
    def start(self): pass
    stop = export_chrome_trace = export_stacks = step = start
    def key_averages(self): return []

class _Loader:
    def __init__(self, *a): pass
    def __iter__(self): return iter(())

class _Graph:
    def capture_begin(self): pass
    capture_end = replay = capture_begin

class _Iterator:
    def __init__(self, *a): pass
    def __next__(self): raise StopIteration

def compile(forward, **options):
    called = []
    def compiled(*a):
        if not called:
            called.append(1)
            time.sleep(float(os.environ.get("STANDIN_COMPILES", 0)))
        return forward(*a)
    return compiled

def _no(*a): return False
def set_anomaly_enabled(mode, check_nan=True): pass
def is_grad_enabled(): return True
def get_num_threads(): return 1
is_anomaly_enabled = are_deterministic_algorithms_enabled = is_autocast_enabled = _no
_module("_C", _current_graph_task_id=lambda: -1, _profiler=types.SimpleNamespace())
_module("nn", Module=_Module, Conv2d=type("Conv2d", (), {}), Conv3d=type("Conv3d", (), {}),
        ModuleList=type("ModuleList", (), {}), Sequential=type("Sequential", (), {}))
_module("autograd", backward=lambda t, *a: None, grad=lambda *a: None)
_module("autograd.profiler_util", EventList=list)
_module("cuda", is_available=_no, is_initialized=_no, CUDAGraph=_Graph)
_module("compiler", is_compiling=_no)
_module("distributed", is_available=_no, is_initialized=_no)
_module("optim", SGD=SGD, Optimizer=Optimizer)
_module("optim.optimizer", Optimizer=Optimizer)
_module("profiler", profile=_Profile, schedule=lambda **k: None,
        ProfilerActivity=types.SimpleNamespace(CPU=0, CUDA=1))
_module("utils")
_module("utils.checkpoint", checkpoint=lambda f, *a, **k: f(*a))
_module("utils.data", DataLoader=_Loader, IterableDataset=type("IterableDataset", (), {}))
_module("utils.data.dataloader", _BaseDataLoaderIter=_Iterator,
        _MultiProcessingDataLoaderIter=type("Multi", (_Iterator,), {}))
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(benchmark=False, deterministic=False))
"""

PROGRAM = """
import sys, time, torch

class Model(torch.nn.Module):
    def forward(self): return torch.Tensor()

model = Model()
optimizer = torch.optim.SGD(model.parameters())
for number in range(100_000):
    optimizer.zero_grad(set_to_none=False)
    model().backward()
    optimizer.step()
    {each}
"""


def write_program(folder: Path, each: str = "", *, text: str = PROGRAM) -> Path:
    """The package, and beside it a program of many steps; `each` is a line of its loop."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(TORCH)
    script = folder / "train.py"
    script.write_text(text.format(each=each))
    return script
