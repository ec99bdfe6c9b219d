"""Adam over many small tensors, one at a time."""

import torch


def make():
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(24)]).cuda()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False, fused=False)
    data = torch.randn(256, 512, device="cuda")

    def step():
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()  # SLOW
        optimizer.zero_grad()

    return step
