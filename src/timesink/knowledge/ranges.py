"""What ranges are called: by PyTorch, by other frameworks, and by people who annotate their programs.

Each name is a regular expression for the name of one range. `EXAMPLES` holds, for each, a name that it must match and
one that it must not, so that a correction here is held to both.
"""

from __future__ import annotations

from typing import Final

# torch.profiler marks a step by `prof.step()`.
PROFILER_STEP: Final = r"^ProfilerStep#\d+$"
# People's ranges that last a step: "step 12", "train_iteration", "execute_model" (vLLM).
STEP: Final = r"(?i)(^|[^a-z])(step|iter|iteration|batch|micro_?batch|execute_model)[^a-z]*$"
# Ranges named like a step that are a part of one: "optimizer step", "load batch".
PART_OF_STEP: Final = r"(?i)optim|sched|load|fetch|next|zero|copy|log"
# aten::, FSDP:: and the ranges of torch.autograd.profiler.emit_nvtx are operators, not steps.
OPERATOR: Final = r"^[A-Za-z_]\w*::|, (seq|op_id) = "
# torch.optim wraps every `step` and `zero_grad`.
TORCH_OPTIMIZER_STEP: Final = r"^Optimizer\.step#"
TORCH_ZERO_GRAD: Final = r"^Optimizer\.zero_grad#"
# An optimizer's step, as torch or people name it.
OPTIMIZER_STEP: Final = r"^Optimizer\.step#|^(?i:optimi[sz]er)([._ ]?step)?$"
# The main process waits for a batch of torch.utils.data, or people say so.
NEXT_BATCH: Final = r"(?i)enumerate\(DataLoader\)#.*__next__|^data(loading|_time)?$|data_?load"

EXAMPLES: Final = {
    PROFILER_STEP: ("ProfilerStep#12", "ProfilerStep*"),
    STEP: ("train step 12", "optimizer stepping stone"),
    PART_OF_STEP: ("load batch", "forward"),
    OPERATOR: ("aten::mm", "step 3"),
    TORCH_OPTIMIZER_STEP: ("Optimizer.step#AdamW.step", "Optimizer.zero_grad#AdamW.zero_grad"),
    TORCH_ZERO_GRAD: ("Optimizer.zero_grad#AdamW.zero_grad", "Optimizer.step#AdamW.step"),
    OPTIMIZER_STEP: ("optimizer_step", "optimizer state saved"),
    NEXT_BATCH: ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "metadata"),
}
