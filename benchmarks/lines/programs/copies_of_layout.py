"""A convolution's input is brought into the other layout twice a step."""

import torch


def make():
    data = torch.randn(64, 128, 56, 56, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)

    def step():
        swapped = swap(data)
        out = torch.mm(weight, weight)
        return swapped, out

    return step


def swap(data):
    for _ in range(4):
        data = data.transpose(1, 3).contiguous()  # SLOW
    return data
