"""A loss is read back row by row."""

import torch


def make():
    weight = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    data = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)

    def step():
        hidden = (data @ weight).relu()
        return total(hidden)

    return step


def total(hidden):
    result = 0.0
    for row in range(40):
        result += hidden[row].sum().item()  # SLOW
    return result
