"""The same training, its batches made ahead of time by four other processes."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GPU = torch.cuda.is_available()
WIDTH, LAYERS, LENGTH, BATCH, STEPS = (512, 4, 256, 32, 120) if GPU else (32, 1, 32, 8, 60)
VOCABULARY, LETTERS = 8192, 600 if GPU else 4000


class Text(Dataset[torch.Tensor]):
    """Made-up documents, tokenised when they are asked for."""

    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        letters = np.random.default_rng(index).integers(0, 256, (LENGTH, LETTERS), dtype=np.int64)
        return torch.from_numpy((letters * np.arange(LETTERS)).sum(1) % VOCABULARY)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, WIDTH // 16, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(tokens)))


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if GPU else "cpu"
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for batch in DataLoader(Text(), batch_size=BATCH, num_workers=4, pin_memory=GPU):
        tokens = batch.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=GPU):
            logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
