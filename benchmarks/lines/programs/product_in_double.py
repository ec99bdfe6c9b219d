"""One product of four runs in double precision."""

import torch


def make():
    weight = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    data = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    wide = weight.double()

    def step():
        hidden = torch.relu(torch.mm(data, weight))
        hidden = project(hidden.double(), wide).bfloat16()
        return torch.mm(torch.relu(torch.mm(hidden, weight)), weight)

    return step


def project(hidden, wide):
    return torch.mm(hidden, wide)  # SLOW
