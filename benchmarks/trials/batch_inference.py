"""Batch inference: pictures through a frozen network, probabilities fetched batch by batch."""

import torch
from torch import nn
from torchvision.models import convnext_tiny

torch.manual_seed(0)
model = convnext_tiny(num_classes=100).cuda().eval()


class Pictures(torch.utils.data.Dataset):
    def __init__(self):
        self.stored = torch.randint(0, 256, (64, 3, 256, 256), dtype=torch.uint8)

    def __len__(self):
        return 1 << 20

    def __getitem__(self, at):
        top, left = at * 7 % 32, at * 13 % 32
        return self.stored[at % 64, :, top : top + 224, left : left + 224].float() / 255


kept = []
with torch.no_grad():
    for pictures in torch.utils.data.DataLoader(Pictures(), batch_size=64, num_workers=2):
        probabilities = nn.functional.softmax(model(pictures.cuda()), dim=-1)
        kept = [*kept[-9:], probabilities.cpu()]
