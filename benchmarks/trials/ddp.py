"""A convolutional net in DistributedDataParallel, for torchrun: small buckets, buffers broadcast, gradients zeroed."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Pictures(Dataset):
    def __init__(self):
        self.stored = torch.randn(64, 3, 96, 96)

    def __len__(self):
        return 1 << 20

    def __getitem__(self, at):
        return self.stored[at % 64], at % 100


def block(into, out, stride):
    return nn.Sequential(
        nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
        nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
    )  # fmt: skip


cuda = torch.cuda.is_available()
dist.init_process_group("nccl" if cuda else "gloo")
local = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
torch.manual_seed(0)
wide = 64 if cuda else 8
net = nn.Sequential(
    block(3, wide, 1), block(wide, 2 * wide, 2), block(2 * wide, 4 * wide, 2), block(4 * wide, 8 * wide, 2),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * wide, 100),
)  # fmt: skip
model = DistributedDataParallel(net.to(device), device_ids=[local] if cuda else None, bucket_cap_mb=1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
data = Pictures()
loader = DataLoader(data, batch_size=64 if cuda else 4, sampler=DistributedSampler(data), num_workers=2 if cuda else 0)
for image, target in loader:
    optimizer.zero_grad(set_to_none=False)
    loss = nn.functional.cross_entropy(model(image.to(device)), target.to(device))
    loss.backward()
    optimizer.step()
