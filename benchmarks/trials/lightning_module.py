"""A LightningModule with its Trainer: an encoder of sentences."""

import lightning as L  # noqa: N812
import torch
from torch import nn


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, at):
        return torch.randint(0, 10_000, (128,), generator=torch.Generator().manual_seed(at)), at % 20


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10_000, 512)
        layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 6), nn.Linear(512, 20)

    def forward(self, words):
        return self.head(self.encoder(self.words(words)).mean(1))

    def training_step(self, batch, _):
        words, label = batch
        loss = nn.functional.cross_entropy(self(words), label)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


L.seed_everything(0)
loader = torch.utils.data.DataLoader(Sentences(), batch_size=64)
trainer = L.Trainer(max_steps=200_000, logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(Classifier(), loader)
