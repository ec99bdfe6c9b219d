"""A diffusion trainer: frozen encoders of pictures and words, noise, a U-Net with attention, averaged weights."""

import copy

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, width, time):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, width), nn.GroupNorm(8, width)
        self.first, self.second = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1)
        self.time = nn.Linear(time, width)

    def forward(self, x, time):
        hidden = self.first(nn.functional.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return x + self.second(nn.functional.silu(self.norm2(hidden)))


class Cross(nn.Module):
    def __init__(self, width, words):
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.attention = nn.MultiheadAttention(width, 8, kdim=words, vdim=words, batch_first=True)

    def forward(self, x, words):
        flat = self.norm(x).flatten(2).transpose(1, 2)
        return x + self.attention(flat, words, words, need_weights=False)[0].transpose(1, 2).view_as(x)


class Unet(nn.Module):
    def __init__(self, width=256, words=256):
        super().__init__()
        self.stem, self.time = (
            nn.Conv2d(4, width, 3, 1, 1),
            nn.Sequential(nn.Linear(64, 512), nn.SiLU(), nn.Linear(512, 512)),
        )
        self.blocks = nn.ModuleList(Residual(width, 512) for _ in range(6))
        self.crosses = nn.ModuleList(Cross(width, words) for _ in range(6))
        self.head = nn.Conv2d(width, 4, 3, 1, 1)

    def forward(self, x, step, words):
        waves = torch.exp(torch.arange(32, device=x.device) * -0.3)
        angle = step[:, None] * waves
        time, x = self.time(torch.cat([angle.sin(), angle.cos()], 1)), self.stem(x)
        for block, cross in zip(self.blocks, self.crosses, strict=True):
            x = cross(block(x, time), words)
        return self.head(x)


torch.manual_seed(0)
vae = nn.Sequential(nn.Conv2d(3, 64, 4, 4), nn.SiLU(), nn.Conv2d(64, 4, 2, 2)).cuda().requires_grad_(False)
text_encoder = nn.Sequential(nn.Embedding(5000, 256), nn.Linear(256, 256), nn.GELU()).cuda().requires_grad_(False)
unet = Unet().cuda()
ema = copy.deepcopy(unet).requires_grad_(False)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)
kept = torch.linspace(0.9999, 0.01, 1000, device="cuda")


class Captioned(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, at):
        seed = torch.Generator().manual_seed(at)
        return torch.rand(3, 256, 256, generator=seed), torch.randint(0, 5000, (32,), generator=seed)


for pictures, words in torch.utils.data.DataLoader(Captioned(), batch_size=16, num_workers=6):
    with torch.no_grad():
        latents, context = vae(pictures.cuda()), text_encoder(words.cuda())
    noise, step = torch.randn_like(latents), torch.randint(0, 1000, (len(latents),), device="cuda")
    share = kept[step].view(-1, 1, 1, 1)
    noisy = share.sqrt() * latents + (1 - share).sqrt() * noise
    loss = nn.functional.mse_loss(unet(noisy, step.float(), context), noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for mean, own in zip(ema.parameters(), unet.parameters(), strict=True):
            mean.lerp_(own, 1e-3)
