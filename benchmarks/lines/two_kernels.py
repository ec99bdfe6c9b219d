"""A product that computes and two hundred passes over memory, for counters sampled along the timeline."""

import time

import torch


def slow(x):
    y = x @ x
    for _ in range(200):
        y = y * 1.0001
    return y


x = torch.randn(4096, 4096, device="cuda")
torch.cuda.synchronize()
torch.cuda.cudart().cudaProfilerStart()
for step in range(6):
    torch.cuda.nvtx.range_push(f"step {step}")
    z = slow(x)
    time.sleep(0.002)
    z.sum().item()
    torch.cuda.nvtx.range_pop()
torch.cuda.cudart().cudaProfilerStop()
