"""A small decoder step, eager and as a replayed CUDA graph, as torch.profiler and Nsight Systems record it.

`python3 pair.py eager OUT`, `pair.py graph OUT`, and `nsys profile -t cuda,nvtx -c cudaProfilerApi
--cuda-graph-trace=node python3 pair.py nsys OUT` on an H200 made `pair/` of `captures/`; redacted.
"""

import sys
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

what, out = sys.argv[1], sys.argv[2]
device = "cuda" if torch.cuda.is_available() else "cpu"
B, H, L, V, T = (8, 64, 2, 256, 32) if device == "cpu" else (32, 2048, 4, 32000, 512)
dtype = torch.float32 if device == "cpu" else torch.bfloat16
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.proj = nn.LayerNorm(H), nn.Linear(H, 3 * H), nn.Linear(H, H)
        self.norm2, self.up, self.down = nn.LayerNorm(H), nn.Linear(H, 4 * H), nn.Linear(4 * H, H)
        self.register_buffer("cache", torch.randn(2, B, 16, T, H // 16))

    def forward(self, x):
        with record_function("attention"):
            q, k, v = self.qkv(self.norm(x)).view(B, 3, 16, 1, H // 16).unbind(1)
            k, v = torch.cat((self.cache[0], k), 2), torch.cat((self.cache[1], v), 2)
            x = x + self.proj(nn.functional.scaled_dot_product_attention(q, k, v).reshape(B, H))
        with record_function("mlp"):
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks, self.head = (
            nn.Embedding(V, H),
            nn.ModuleList(Block() for _ in range(L)),
            nn.Linear(H, V),
        )

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x).argmax(-1)


@torch.inference_mode()
def main():
    model = Model().to(device=device, dtype=dtype).eval()
    tokens = torch.randint(0, V, (B,), device=device)
    sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    for _ in range(3):
        model(tokens)
    sync()
    if device == "cuda" and what != "eager":
        side = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        if what == "nsys":
            torch.cuda.profiler.start()
        named = torch.autograd.profiler.emit_nvtx(enabled=what == "nsys", record_shapes=True)
        with named, torch.cuda.graph(graph, stream=side):
            model(tokens)
        run = graph.replay
    else:
        run = partial(model, tokens)
    sync()
    if what == "nsys":
        for step in range(10):
            torch.cuda.nvtx.range_push(f"step {step}")
            run()
            tokens.copy_(tokens.roll(1))
            torch.cuda.nvtx.range_pop()
            sync()
        torch.cuda.profiler.stop()
        return
    for _ in range(3):
        run()
    sync()
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with profile(activities=activities, record_shapes=True, with_stack=what == "eager", with_modules=False) as prof:
        for step in range(4 if what == "eager" else 8):
            with record_function(f"step {step}"):
                run()
                tokens.copy_(tokens.roll(1))
            sync()
    prof.export_chrome_trace(str(Path(out) / f"{what}.json"))


main()
