"""An activation is written as twelve passes over memory."""

import torch


def make():
    data = torch.randn(8192, 1024, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)

    def step():
        hidden = torch.mm(data, weight)
        hidden = activate(hidden)
        return torch.mm(hidden, weight)

    return step


def activate(x):  # SLOW
    inner = 0.79788456 * (x + 0.044715 * x * x * x)  # SLOW
    gate = 1.0 - 2.0 / (torch.exp(2.0 * inner) + 1.0)  # SLOW
    return 0.5 * x * (1.0 + gate)  # SLOW
