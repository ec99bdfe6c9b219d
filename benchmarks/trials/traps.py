"""Programs that one change breaks each: `python traps.py KIND`, of diverges, unpicklable, recompiles, hooks, memory."""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

kind = sys.argv[1]
torch.manual_seed(0)


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.look = (lambda at: at % 10) if kind == "unpicklable" else None

    def __len__(self):
        return 1 << 20

    def __getitem__(self, at):
        return torch.randn(1024, generator=torch.Generator().manual_seed(at)), at % 10


class Net(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.into, self.out = nn.Linear(1024, width), nn.Linear(width, 10)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.calls = 0

    def block(self, layer, x):
        return x + torch.tanh(layer(x)) / len(self.layers)

    def forward(self, x):
        self.calls += 1
        x = self.into(x)
        for layer in self.layers:
            x = checkpoint(self.block, layer, x, use_reentrant=False) if kind == "memory" else self.block(layer, x)
            if kind == "recompiles":
                x = x * (1 + 1e-6 * self.calls)  # a number that is another one in every step
        if kind == "diverges":  # a small difference of large numbers
            x = (x.unsqueeze(1) @ torch.ones(x.shape[1], 1, device=x.device)).squeeze(-1) * 1e-3 + (x + 300.0) - 300.0
        return self.out(x)


width, layers = (8192, 12) if kind == "memory" else (1024, 8)
rows = 256  # for memory: what is kept takes two thirds of the GPU's, and without recomputation more than there is
if kind == "memory":
    rows = torch.cuda.mem_get_info()[1] // (22 * width * 4)
model = Net(width, layers).cuda()
if kind == "hooks":
    optimizers = {p: torch.optim.Adam([p], lr=1e-4, foreach=False) for p in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
else:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
if kind == "memory":
    x, y = torch.randn(rows, 1024, device="cuda"), torch.randint(0, 10, (rows,), device="cuda")
    batches = iter(lambda: (x, y), None)
else:
    if kind == "unpicklable":
        torch.multiprocessing.set_start_method("spawn")
    batches = torch.utils.data.DataLoader(Rows(), batch_size=rows)
if __name__ == "__main__":
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        if kind != "hooks":
            optimizer.step()
            optimizer.zero_grad()
