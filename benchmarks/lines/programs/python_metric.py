"""A metric is computed in plain Python between two launches."""

import torch


def make():
    weight = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    data = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)

    def step():
        hidden = (data @ weight).relu()
        score = accuracy(40000)
        hidden = hidden @ weight
        torch.cuda.synchronize()
        return score

    return step


def accuracy(count):
    right = 0
    for number in range(count):  # SLOW
        right += (number * 7919) % 13 == 5  # SLOW
    return right / count
