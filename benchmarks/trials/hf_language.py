"""A GPT-2 of six layers trained from scratch by Hugging Face's Trainer, as its examples do."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, at):
        words = torch.randint(0, 8192, (256,), generator=torch.Generator().manual_seed(at))
        return {"input_ids": words, "labels": words}


torch.manual_seed(0)
config = GPT2Config(vocab_size=8192, n_positions=256, n_embd=768, n_layer=6, n_head=12, attn_implementation="eager")
arguments = TrainingArguments(
    output_dir="/tmp/hf_language",
    per_device_train_batch_size=16,
    max_steps=100_000,
    logging_steps=500,
    save_strategy="no",
    report_to=[],
)
Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Texts()).train()
