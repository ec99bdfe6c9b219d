"""A ViT fine-tuned on pictures by Hugging Face's Trainer; pictures are prepared when they are asked for."""

import torch
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification


class Pictures(torch.utils.data.Dataset):
    def __init__(self):
        self.stored = torch.randint(0, 256, (64, 3, 256, 256), dtype=torch.uint8)

    def __len__(self):
        return 100_000

    def __getitem__(self, at):
        top, left = at * 7 % 32, at * 13 % 32
        picture = self.stored[at % 64, :, top : top + 224, left : left + 224]
        return {"pixel_values": picture.float() / 127.5 - 1, "labels": at % 10}


torch.manual_seed(0)
config = ViTConfig(hidden_size=384, num_hidden_layers=8, num_attention_heads=6, intermediate_size=1536, num_labels=10)
arguments = TrainingArguments(
    output_dir="/tmp/hf_images",
    per_device_train_batch_size=32,
    max_steps=100_000,
    logging_steps=500,
    save_strategy="no",
    report_to=[],
    dataloader_pin_memory=False,
)
Trainer(model=ViTForImageClassification(config), args=arguments, train_dataset=Pictures()).train()
