"""Which source files are the program's own: not Python's standard library, nor a library that programs install.

Profilers write paths relative to the folders on `sys.path`, so that `site-packages` is often not in them; libraries
are then known by the name of their top folder.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Final

_INSTALLED: Final = re.compile(
    r"(?:^|[/\\])(?:site-packages|dist-packages|lib[/\\]python3(?:\.\d+)?)[/\\]|^<|^$"
    r"|(?:^|[/\\])[a-z2-7]{2}[/\\]c[a-z2-7]{51}\.py$"  # code that TorchInductor generated
)
_LIBRARIES: Final = frozenset((
    "torch", "torchvision", "torchaudio", "torchdata", "torchrec", "torch_xla", "functorch", "triton", "numpy",
    "scipy", "pandas", "sklearn", "PIL", "cv2", "tqdm", "transformers", "accelerate", "datasets", "tokenizers",
    "huggingface_hub", "peft", "trl", "diffusers", "timm", "lightning", "pytorch_lightning", "lightning_fabric",
    "ignite", "deepspeed", "megatron", "apex", "xformers", "flash_attn", "transformer_engine", "fairscale",
    "composer", "wandb", "tensorboard", "mlflow", "pyarrow", "ray", "vllm", "sglang", "jax", "jaxlib", "flax", "cupy",
    "tensorflow", "keras", "hydra", "omegaconf", "click", "typer", "IPython", "ipykernel", "nvtx", "einops",
    "safetensors", "timesink",
))  # fmt: skip


@lru_cache(maxsize=65536)
def is_own(file: str) -> bool:
    """Whether a path is of the program itself: `train.py` is, `torch/nn/functional.py` and `threading.py` are not."""
    if _INSTALLED.search(file):
        return False
    top = re.split(r"[/\\]", file)[0].removesuffix(".py")
    return top not in _LIBRARIES and top not in sys.stdlib_module_names
