"""What Python and C++ frames say: which library is at work, and for what memory is allocated below them.

Frames read "file(line): function", separated by ";"; C++ frames without a file are the bare function.

`is_own` tells which source files are the program's own: not Python's standard library, nor a library that programs
install. Profilers write paths relative to the folders on `sys.path`, so that `site-packages` is often not in them;
libraries are then known by the name of their top folder.
"""

import re
import sys
from functools import lru_cache
from typing import Final

from timesink.knowledge import Pattern

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
WORKSPACE: Final = Pattern(
    r"getNewWorkspace|getCurrentCUDABlasHandle|CUDABlasLtWorkspace|[cC]u(?:da)?[dD]nn\w*[wW]orkspace"
    r"|getChosenWorkspaceSize|getCUDABlasLtWorkspace|getCurrentCUDASolver",
    "a library's own memory (cuBLAS, cuDNN)",
    ("at::cuda::getNewWorkspace()", "cudnnGetConvolutionForwardWorkspaceSize"), "at::empty",
)
IMPORTS: Final = Pattern(
    r"<frozen importlib\._bootstrap(?:_external)?>|importlib/__init__\.py\(\d+\): import_module", "imports a module",
    ("<frozen importlib._bootstrap>(1360): _find_and_load", "importlib/__init__.py(90): import_module"),
    "torch/optim/adamw.py(220): step",
)
OPTIMIZER: Final = Pattern(
    r"torch/optim/|: _init_group|/optimizers?/|(?:Fused|CPU)?Adam\w*\.py\(|deepspeed/runtime/zero/stage",
    "an optimizer (PyTorch, Apex, DeepSpeed)",
    ("torch/optim/adamw.py(220): step", "apex/optimizers/fused_adam.py(90): step"),
    "torch/nn/modules/module.py(1530): _call_impl",
)
BACKWARD: Final = Pattern(
    r"autograd::Engine|PythonEngine|torch/autograd/__init__\.py\(\d+\): (?:backward|_make_grads|grad)"
    r"|: _engine_run_backward|torch/_tensor\.py\(\d+\): backward|autograd::generated::\w+Backward\d*::apply",
    "the backward pass",
    ("torch/_tensor.py(600): backward", "torch::autograd::Engine::evaluate_function"),
    "torch/nn/modules/module.py(1530): _call_impl",
)
RECOMPUTE: Final = Pattern(
    r"torch/utils/checkpoint\.py", "activations are computed anew",
    "torch/utils/checkpoint.py(480): checkpoint", "torch/serialization.py(900): save",
)
SHARDING: Final = Pattern(
    r"_fsdp_collectives\.py|_fsdp_param\.py|_fsdp_param_group\.py|fsdp/_flat_param\.py|fsdp/_runtime_utils\.py"
    r"|fsdp/flat_param\.py",
    "sharded parameters (FSDP 1 and 2)",
    "torch/distributed/fsdp/_flat_param.py(1300): _alloc_padded_unsharded_flat_param",
    "torch/distributed/fsdp/wrap.py(1): wrap",
)
REDUCER: Final = Pattern(
    r"c10d::Reducer|: _ddp_init_helper|parallel/distributed\.py\(\d+\): __init__|ProcessGroupNCCL"
    r"|distributed/distributed_c10d\.py",
    "buckets of gradients and collectives (DistributedDataParallel)",
    ("c10d::Reducer::initialize_buckets", "c10d::ProcessGroupNCCL::allreduce"), "c10d::Work",
)
CAST: Final = Pattern("autocast::cached_cast", "a copy in a narrower type", "at::autocast::cached_cast", "at::to")
KV_CACHE: Final = Pattern(
    r"(?i)kv_?cache|past_?key_?value|cache_utils\.py|static_?cache|paged_?attention|block_manager|cache_engine",
    "keys and values of requests (Transformers, vLLM, SGLang)",
    ("transformers/cache_utils.py(400): update", "vllm/worker/cache_engine.py(60): x"), "functools.py(30): cache",
)
WEIGHTS: Final = Pattern(
    r"torch/nn/modules/\w+\.py\(\d+\): (?:__init__|reset_parameters|_apply|convert)|torch/nn/parameter\.py"
    r"|: load_state_dict|: from_pretrained|torch/nn/init\.py|: _init_sharded_param|: init_weights|: _init_weights",
    "parameters are made or moved",
    ("torch/nn/modules/linear.py(100): __init__", "m.py(1): from_pretrained"),
    "torch/nn/modules/module.py(1530): _call_impl",
)
MODULE: Final = Pattern(
    r"torch/nn/modules/module\.py\(\d+\): _call_impl", "a module is called",
    "torch/nn/modules/module.py(1530): _call_impl", "torch/nn/modules/module.py(900): _apply",
)
DATA: Final = Pattern(
    "torch/utils/data/", "batches are made",
    "torch/utils/data/_utils/fetch.py(50): fetch", "torch/utils/checkpoint.py",
)
PYTHON: Final = Pattern(r"\.py\(\d+\): ", "a Python frame", "train.py(12): forward", "at::empty")
ZERO_GRAD: Final = Pattern(
    r": zero_grad\b", "gradients are given back",
    "torch/optim/optimizer.py(900): zero_grad", "train.py(1): zero_gradient",
)
LOSS: Final = Pattern(
    "(?i)cross_?entropy|log_?softmax|nll_?loss|: (?:compute_)?logits|lm_head", "a loss over logits, or the logits",
    ("torch/nn/functional.py(3400): cross_entropy", "model.py(3): compute_logits"),
    "torch/nn/functional.py(1): mse_loss",
)
LOADING: Final = Pattern(
    r"torch/utils/data/dataloader\.py\(\d+\): (__next__|_next_data|_get_data|_try_get_data)$",
    "the program takes a batch (PyTorch)",
    "torch/utils/data/dataloader.py(700): __next__", "torch/utils/data/dataloader.py(400): __iter__",
)
WAITS: Final = Pattern(
    r"^<built-in (?:method|function) (?:acquire|wait\w*|poll|select|control|recv\w*|_?accept|sleep)\b"
    r"|^<method '(?:acquire|wait|poll|control|recv\w*|_?accept|get)' of '(?:_thread|select|_?socket|_queue|zmq)"
    r"|(?:^|/)(?:threading\.py\(\d+\): (?:wait|join|_wait_for_tstate_lock)|queue\.py\(\d+\): get"
    r"|selectors\.py\(\d+\): select|socket\.py\(\d+\): (?:accept|readinto)"
    r"|multiprocessing/(?:connection|queues)\.py\(\d+\): (?:_?recv\w*|_?poll|wait|get)"
    r"|zmq/sugar/\w+\.py\(\d+\): (?:poll|recv\w*))$",
    "waits for a request, another thread or process, or a timer (Python)",
    ("<built-in method poll of select.epoll object at 0x7f10>", "<method 'recv' of '_socket.socket' objects>",
     "queue.py(154): get", "threading.py(300): wait", "<built-in function sleep>"),
    ("<built-in method get of dict object at 0x7f10>", "serve.py(12): get", "threading.py(953): run"),
)
PLACE: Final = Pattern(
    r"^(.+?)\((\d+)\): ", "file and line of a frame (torch.profiler)",
    "torch/nn/modules/module.py(1530): _wrapped_call_impl", "<built-in function print>",
)
LIBRARY: Final = Pattern(
    r"\.so(\.|$)|(^|/)python[\d.]*$|^\[", "a module of native frames that is no program of the user (nsys)",
    ("/usr/lib/libcuda.so.1", "/usr/bin/python3.11", "[kernel.kallsyms]"), ("/home/a/app", "train"),
)
MODULE_NUMBER: Final = Pattern(
    r"_\d+$", "PyTorch numbers the instances of a class (torch.profiler)",
    "nn.Module: Linear_12", "nn.Module: Linear",
)
MODULE_CALL: Final = Pattern(
    r"^nn\.Module: ", "a call of a module of PyTorch, among Python frames (torch.profiler with stacks)",
    "nn.Module: Linear_0", "torch/nn/modules/linear.py(130): forward",
)
_INSTALLED_PACKAGES: Final = """
torch torchvision torchaudio torchdata torchrec torch_xla functorch triton numpy scipy pandas sklearn PIL cv2
tqdm transformers accelerate datasets tokenizers huggingface_hub peft trl diffusers timm lightning
pytorch_lightning lightning_fabric ignite deepspeed megatron apex xformers flash_attn transformer_engine
fairscale composer wandb tensorboard mlflow pyarrow ray vllm sglang jax jaxlib flax cupy tensorflow keras
hydra omegaconf click typer IPython ipykernel nvtx einops safetensors timesink
"""
INSTALLED_PACKAGES: Final = frozenset(_INSTALLED_PACKAGES.split())
"""Top packages of libraries that programs install: their files are not the program's own."""
# fmt: on

# Frames with any of these are not the user's own.
LIBRARIES: Final = ("/torch/", "torch/", "site-packages/", "dist-packages/", "/contextlib.py(")

STACKS: Final = {
    "workspace": WORKSPACE, "optimizer": OPTIMIZER, "backward": BACKWARD, "recompute": RECOMPUTE,
    "sharding": SHARDING, "reducer": REDUCER, "cast": CAST, "kv_cache": KV_CACHE, "weights": WEIGHTS,
    "module": MODULE, "data": DATA, "python": PYTHON,
}  # fmt: skip
CALL_LINES: Final = "timesinkCallLines"
"""The member of a trace to which timesink's own capture adds lines of calls (`capture.agent.recorders.MEMBER`)."""
SAMPLES: Final = "timesinkSamples"
"""The member to which it adds the stacks that it looked at (`capture.agent.samples.MEMBER`)."""


_PACKAGES: Final = r"(?:^|[/\\])(?:site-packages|dist-packages|lib[/\\]python3(?:\.\d+)?|python3\.\d+)[/\\]"
_INSTALLED: Final = re.compile(
    rf"{_PACKAGES}|^<|^$"
    r"|(?:^|[/\\])[a-z2-7]{2}[/\\]c[a-z2-7]{51}\.py$"  # code that TorchInductor generated
    r"|[/\\]timesink[/\\](?:capture|trials)[/\\]"  # our agent, installed to be edited
)


_UP_TO_PACKAGES: Final = re.compile(rf"^.*{_PACKAGES}")
_BELOW_ENGINES: Final = frozenset(
    ("torch", "torchvision", "torchaudio", "functorch", "triton", "numpy", "jax", "jaxlib")
)


@lru_cache(maxsize=65536)
def is_engine(file: str) -> bool:
    """Whether a path is of what runs models for a program, such as vLLM or Transformers: where none of the program's
    own files is on any stack, these are as near to it as there is."""
    package = _top(_UP_TO_PACKAGES.sub("", file))
    return bool(package) and package[0] != "<" and package not in _BELOW_ENGINES | sys.stdlib_module_names


@lru_cache(maxsize=65536)
def is_own(file: str) -> bool:
    """Whether a path is of the program itself: `train.py` is, `torch/nn/functional.py` and `threading.py` are not."""
    if _INSTALLED.search(file):
        return False
    top = _top(file)
    return top not in INSTALLED_PACKAGES and top not in sys.stdlib_module_names


def _top(file: str) -> str:
    """The package or module that a relative path begins with."""
    return re.split(r"[/\\]", file)[0].removesuffix(".py")
