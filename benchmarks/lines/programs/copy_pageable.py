"""A large pageable copy to the device in every step."""

import torch


def make():
    images = torch.randn(64, 3, 224, 224)
    weight = torch.randn(3 * 224 * 224, 512, device="cuda")

    def step():
        batch = upload(images)
        hidden = torch.mm(batch.view(64, -1), weight)
        torch.cuda.synchronize()
        return hidden

    return step


def upload(images):
    return images.to("cuda")  # SLOW
