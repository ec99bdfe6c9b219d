"""Which rank this process is, by torch.distributed or by the variables of its launcher."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
WORLD_VARIABLES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")


def rank_and_world(environment: Mapping[str, str] | None = None) -> tuple[int, int]:
    """(rank, number of ranks); (0, 1) where nothing says otherwise."""
    distributed = sys.modules.get("torch.distributed")
    if environment is None and distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    variables = os.environ if environment is None else environment
    rank = _first(variables, RANK_VARIABLES, 0)
    return rank, max(_first(variables, WORLD_VARIABLES, 1), rank + 1)


def _first(variables: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    return next((int(variables[name]) for name in names if variables.get(name, "").isdigit()), default)
