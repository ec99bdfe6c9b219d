"""A loop around Accelerate, as its examples have it: a BERT that classifies pairs, recomputing its activations."""

import torch
from accelerate import Accelerator
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup


class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, at):
        words = torch.randint(0, 30_000, (128,), generator=torch.Generator().manual_seed(at))
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": at % 2}


torch.manual_seed(0)
accelerator = Accelerator()
config = BertConfig(num_hidden_layers=6, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model = BertForSequenceClassification(config)
model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
loader = torch.utils.data.DataLoader(Pairs(), batch_size=32, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
scheduler = get_linear_schedule_with_warmup(optimizer, 100, 1_000_000)
model.train()
for batch in loader:
    loss = model(**batch).loss
    accelerator.backward(loss)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
