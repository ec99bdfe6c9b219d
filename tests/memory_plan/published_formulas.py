"""Formulas as their authors published them: references the tape is tested against, and quick answers by hand."""

from typing import Literal


def mixed_precision_adam_bytes(parameters: int) -> int:
    """Model states with fp16 weights and gradients and fp32 master weights, momentum, variance: ``16 P``.

    ZeRO (arXiv:1910.02054), section 3.1: 2 + 2 + 12 bytes per parameter.
    """
    return (2 + 2 + 4 + 4 + 4) * parameters


def zero_bytes(parameters: int, ranks: int, stage: Literal[0, 1, 2, 3]) -> float:
    """Model states per rank under ZeRO, same recipe: stage 1 ``4P + 12P/N``, 2 ``2P + 14P/N``, 3 ``16P/N``."""
    whole = {0: 16.0, 1: 4.0, 2: 2.0, 3: 0.0}[stage]
    return parameters * (whole + (16.0 - whole) / ranks)


def korthikanti_layer_bytes(
    sequence: int,
    batch: int,
    hidden: int,
    heads: int,
    tensor: int = 1,
    variant: Literal["none", "tensor", "sequence", "selective", "full"] = "none",
) -> float:
    """Activations of one GPT layer in 16 bits with dropout and unfused attention (arXiv:2205.05198, table 2).

    ``none`` sbh(34 + 5as/h); ``tensor`` sbh(10 + 24/t + 5as/(ht)); ``sequence`` (sbh/t)(34 + 5as/h);
    ``selective`` (with sequence parallelism) 34 sbh/t; ``full`` 2 sbh.
    """
    sbh, attention, t = sequence * batch * hidden, 5 * heads * sequence / hidden, tensor
    return {
        "none": sbh * (34 + attention),
        "tensor": sbh * (10 + 24 / t + attention / t),
        "sequence": sbh / t * (34 + attention),
        "selective": 34 * sbh / t,
        "full": 2.0 * sbh,
    }[variant]


def gated_layer_bytes(tokens: int, hidden: int, kv_share: float, feedforward: int) -> float:
    """Activations of one Llama layer in 16 bits: RMSNorm, flash attention, SwiGLU fused: ``sb(12h + 4hr + 6f)``.

    `kv_share` r = n_kv / n_heads. Eager PyTorch keeps the SiLU result as well: 8f in place of 6f.
    """
    return tokens * (12 * hidden + 4 * hidden * kv_share + 6 * feedforward)
