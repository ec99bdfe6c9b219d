"""Operators by name, and element types as PyTorch writes them."""

from __future__ import annotations

from typing import Final

from timesink.knowledge.pattern import Pattern

PRODUCTS: Final = Pattern(
    r"^aten::(mm|addmm|bmm|baddbmm|linear|_addmm_activation)$", "a matrix product", ("aten::mm", "aten::linear"),
    "aten::mul",
)  # fmt: skip
SHAPED: Final = Pattern(
    r"^aten::(mm|addmm|bmm|baddbmm|convolution|_scaled_dot_product_\w*attention)$",
    "its shapes follow the batch and the model, not the rank's place in a group",
    ("aten::mm", "aten::_scaled_dot_product_flash_attention"), ("aten::linear", "aten::all_gather"),
)  # fmt: skip
READS_A_VALUE: Final = Pattern(
    r"^aten::(item|_local_scalar_dense|is_nonzero)$", "it exists to hand a value to the host", "aten::item",
    "aten::items",
)  # fmt: skip
REENTRANT_CHECKPOINT: Final = Pattern(
    r"^CheckpointFunction$", "runs a layer that is run again backward, and saves nothing but its arguments",
    "CheckpointFunction", "CheckpointFunctionBackward", "torch.utils.checkpoint with use_reentrant",
)  # fmt: skip
COPY: Final = Pattern(r"^aten::copy_$", "a copy, which may change type or layout", "aten::copy_", "aten::_to_copy")
FLOATING: Final = Pattern(
    r"^(?:float|double|c10::(?:BFloat16|Half|Float8\w*))$", "a floating element type",
    ("float", "c10::BFloat16", "c10::Float8_e4m3fn"), "long int",
)  # fmt: skip
ALLOCATES: Final = Pattern(
    r"^aten::(empty|empty_like|empty_strided|new_empty|new_empty_strided|resize_|empty_permuted)$",
    "asks for memory whose content nobody has written yet", ("aten::empty", "aten::resize_"), "aten::zeros",
)  # fmt: skip
FILLS: Final = Pattern(r"^aten::fill_$", "writes one value everywhere", "aten::fill_", "aten::full")
CHECKS_FOR_NAN: Final = Pattern(r"^aten::isnan$", "looks for what is no number", "aten::isnan", "aten::nan_to_num")
