"""Programs on speech: a Whisper-like scorer, wav2vec-like fine-tuning, an RNN transducer that decodes."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.program import Step
from benchmarks.ladders.parts import Context, EncoderLayer, graphed, trained
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class SpeechEncoder(nn.Module):
    """Mel bands through two convolutions and a transformer to one score a clip."""

    def __init__(self, bands: int, frames: int, width: int, layers: int, fused: bool) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(bands, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, padding=1)
        self.places = nn.Parameter(torch.randn(frames // 2, width) * 0.01)
        self.blocks = nn.ModuleList(EncoderLayer(width, max(1, width // 64), fused) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 50)

    def forward(self, mels: Tensor) -> Tensor:
        hidden = F.gelu(self.conv2(F.gelu(self.conv1(mels)))).transpose(1, 2) + self.places
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden).mean(1))


def speech_serving(context: Context) -> Step:
    """Clips scored by a Whisper-like encoder in fp32, sent from pageable memory, the scores fetched."""
    size = context.machine.size
    frames = size(1500, 32)
    model = context.place(lambda: SpeechEncoder(80, frames, size(512, 16), size(4, 2), "fused_attention" in context))
    model.eval().requires_grad_(False)
    context.compile(model.blocks)
    clips = [context.normal(context.items(16, 2), 80, frames, seed=at).cpu() for at in range(4)]
    if "pin_memory" in context:
        clips = [context.machine.pinned(clip) for clip in clips]
    served = 0

    @torch.inference_mode()
    def step() -> Tensor:
        nonlocal served
        mels = clips[served % len(clips)].to(context.machine.device, non_blocking="pin_memory" in context)
        served += 1
        with context.autocast():
            scores = model(mels).float().softmax(-1)
        return scores.cpu().square().sum()

    return step


class WaveEncoder(nn.Module):
    """Five strided convolutions with norms over raw audio, then a transformer whose layers may be run twice."""

    def __init__(self, width: int, layers: int, fused: bool, again: bool) -> None:
        super().__init__()
        self.again = again
        shapes = [(1, 10, 5), (width // 2, 3, 2), (width // 2, 3, 2), (width // 2, 3, 2), (width // 2, 2, 2)]
        self.convs = nn.ModuleList(nn.Conv1d(into, width // 2, wide, by) for into, wide, by in shapes)
        self.norms = nn.ModuleList(nn.GroupNorm(8, width // 2) for _ in shapes)
        self.project = nn.Linear(width // 2, width)
        self.blocks = nn.ModuleList(EncoderLayer(width, max(1, width // 64), fused) for _ in range(layers))
        self.head = nn.Linear(width, 500)

    def forward(self, audio: Tensor) -> Tensor:
        hidden = audio[:, None]
        for conv, norm in zip(self.convs, self.norms, strict=True):
            hidden = F.gelu(norm(conv(hidden)))
        hidden = self.project(hidden.transpose(1, 2))
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False) if self.again else block(hidden)
        return self.head(hidden)


def wav2vec_finetuning(context: Context) -> Step:
    """A wav2vec-like encoder fine-tuned on frame labels; anomaly mode was left on, layers are recomputed."""
    size = context.machine.size
    again = "no_recomputation" not in context
    model = context.place(lambda: WaveEncoder(size(512, 16), size(2, 2), "fused_attention" in context, again))
    audio = context.normal(context.items(10, 2), size(80000, 1600))
    frames = model(audio[:1]).shape[1]
    labels = (torch.arange(len(audio) * frames, device=audio.device) * 37 % 500).view(len(audio), frames)
    loss_of = lambda: F.cross_entropy(model(audio).float().flatten(0, 1), labels.flatten())  # noqa: E731
    train = trained(context, loss_of, context.adamw(model))

    def step() -> Tensor:
        with torch.autograd.set_detect_anomaly("drop_debugging" not in context):
            return train()

    return step


class Cell(nn.Module):
    """An LSTM cell with norms, written out, as where one wants to change it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inward, self.inner = nn.Linear(width, 4 * width, bias=False), nn.Linear(width, 4 * width)
        self.norm = nn.LayerNorm(width)

    def forward(self, given: Tensor, hidden: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        into, forget, new, out = (self.inward(given) + self.inner(hidden)).chunk(4, dim=1)
        kept = torch.sigmoid(forget) * kept + torch.sigmoid(into) * torch.tanh(new)
        return torch.sigmoid(out) * torch.tanh(self.norm(kept)), kept


class Transducer(nn.Module):
    """Prediction network of two cells, and the joint network."""

    def __init__(self, width: int, symbols: int) -> None:
        super().__init__()
        self.symbols = nn.Embedding(symbols, width)
        self.cells = nn.ModuleList(Cell(width) for _ in range(2))
        self.heard, self.said = nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, symbols)

    def joint(self, heard: Tensor, said: Tensor) -> Tensor:
        return self.out(torch.tanh(self.heard(heard) + self.said(said))).argmax(-1)

    def predict(self, symbol: Tensor, state: Tensor, moved: Tensor) -> Tensor:
        """The next state [4, batch, width], hidden and kept of both cells; the old one where no symbol was said."""
        given, parts = self.symbols(symbol), []
        for at, cell in enumerate(self.cells):
            given, kept = cell(given, state[2 * at], state[2 * at + 1])
            parts += [given, kept]
        return torch.where(moved[None, :, None], torch.stack(parts), state)


def transducer_decoding(context: Context) -> Step:
    """Greedy decoding of a batch, frame by frame; the host asks after every frame whether a symbol was said."""
    size = context.machine.size
    batch, width, frames = size(32, 2), size(640, 16), size(6, 3)
    model = context.place(lambda: Transducer(width, 1024)).eval().requires_grad_(False)
    heard = context.normal(frames, batch, width)
    now, state = torch.zeros_like(heard[0]), torch.zeros(4, batch, width, device=heard.device)
    symbol = torch.zeros(batch, dtype=torch.long, device=heard.device)
    joint, predict = context.compiled(model.joint), context.compiled(model.predict)

    @torch.no_grad()
    def listen() -> None:
        with context.autocast():
            symbol.copy_(joint(now, state[2]))

    @torch.no_grad()
    def say() -> None:
        with context.autocast():
            state.copy_(predict(symbol, state, symbol != 0))

    def all_frames() -> None:
        for frame in heard:
            now.copy_(frame)
            listen()
            say()

    def frame_by_frame() -> None:
        for frame in heard:
            now.copy_(frame)
            listens()
            if bool((symbol != 0).any()):
                says()

    if "remove_sync" in context:
        decode = graphed(context, all_frames)
    else:
        listens, says, decode = graphed(context, listen), graphed(context, say), frame_by_frame

    def step() -> Tensor:
        state.zero_()
        decode()
        return state.square().sum()

    return step
