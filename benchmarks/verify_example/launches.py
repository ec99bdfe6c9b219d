"""A step of many small kernels, launched one by one, or (`--graph`) captured once in a CUDA graph and replayed."""

from __future__ import annotations

import sys

import torch
from torch import nn

STEPS, WARM_UP = 300, 11


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(24))).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True, foreach=False)
    data = torch.randn(64, 256, device="cuda")

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = (model(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            loss = step()
    torch.cuda.current_stream().wait_stream(stream)
    if "--graph" in sys.argv:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()
        for _ in range(STEPS - WARM_UP):
            graph.replay()
    else:
        for _ in range(STEPS - WARM_UP):
            loss = step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
