"""A small batching server in plain PyTorch: continuous batching, a paged cache, CUDA graphs by batch size.

Requests join and leave a running batch at every engine step; a prompt is read in chunks beside the tokens that others
get. The next step is launched before the tokens of the last are read, so that the GPU never waits for the host:
whatever `Setting.fault` names takes one of these properties away.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from benchmarks.serving.suite import Setting
from torch import Tensor, nn
from torch.nn import functional

BLOCK = 16
"""Tokens in a page of the cache."""
RING = 8
"""Buffers on the host in turn: a step's input may not be rewritten before the device has read it."""
FREE_PAGES = 256
"""Pages that a table has room for where nobody asks how long a sequence may become."""
WORDS_AGAIN = 160
"""Words that are put into letters again with every token, where that is the fault."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the model is."""

    width: int = 1024
    heads: int = 16
    layers: int = 4
    words: int = 32000


TINY = Size(32, 2, 2, 128)


class Layer(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, width = size.heads, size.width
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, cache: Tensor, slots: Tensor, table: Tensor, bias: Tensor) -> Tensor:
        """`x`: all tokens in one dimension; those of `table.shape[0]` sequences, as many of each."""
        count, sequences = x.shape[0], table.shape[0]
        query, *new = self.qkv(self.norm(x)).view(count, 3, self.heads, -1).unbind(1)
        for pages, part in zip(cache, new, strict=True):
            pages.view(-1, *part.shape[1:]).index_copy_(0, slots, part)
        held = [pages[table].view(sequences, -1, *query.shape[1:]).transpose(1, 2) for pages in cache]
        query = query.view(sequences, count // sequences, *query.shape[1:]).transpose(1, 2)
        out = functional.scaled_dot_product_attention(query, *held, attn_mask=bias)
        x = x + self.proj(out.transpose(1, 2).reshape(count, -1))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.embed, self.norm = nn.Embedding(size.words, size.width), nn.LayerNorm(size.width)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.head = nn.Linear(size.width, size.words, bias=False)


@dataclass(slots=True)
class Request:
    """`done` tokens of the prompt are in the cache, `made` were generated; `seen` is when each was handed out."""

    number: int
    arrived: float
    row: int = -1
    blocks: list[int] = field(default_factory=list)
    done: int = 0
    made: int = 0
    seen: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Pending:
    """Tokens on their way to the host, of an engine step."""

    step: int
    requests: list[Request]
    tokens: Tensor
    arrived: torch.cuda.Event | None


class Engine:
    """One server at one setting. `mark` names a step to a profiler, as servers do: `vllm`, `model`, or not at all."""

    def __init__(self, model: Model, setting: Setting, tiny: bool = False) -> None:
        self.model, self.set, self.fault = model, setting, setting.fault
        self.device, self.dtype = model.head.weight.device, model.head.weight.dtype
        self.cuda = self.device.type == "cuda"
        self.prompt, self.output, self.chunk = (
            (32, 12, 32 if setting.chunk >= setting.prompt else 16)
            if tiny
            else (setting.prompt, setting.output, setting.chunk)
        )
        self.pages = (self.prompt + self.output) // BLOCK + 1
        size, self.random = model.size, numpy.random.default_rng(1)
        shape = (size.layers, 2, setting.cap * self.pages + 1, BLOCK, size.heads, size.width // size.heads)
        self.cache = torch.randn(shape, device=self.device, dtype=self.dtype)
        self.free, self.rows = list(range(1, shape[2])), list(range(setting.cap))
        self.tables = numpy.zeros((setting.cap, self.pages), numpy.int32)
        self.last = torch.zeros(setting.cap + 1, dtype=torch.long, device=self.device)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.pending: deque[Pending] = deque()
        self.ended: list[Request] = []
        self.number, self.turn, self.steps = 0, 0, 0
        self.mark: Callable[[str], AbstractContextManager[object]] = lambda name: nullcontext()
        self.texts = [f"_{index}" for index in range(size.words)]
        self.work: dict[tuple[str, int], Callable[[], None]] = {}
        self.inputs: dict[tuple[str, int], tuple[Tensor, list[Tensor]]] = {}
        self.outputs: dict[tuple[str, int], Tensor] = {}
        self.logits: dict[tuple[str, int], Tensor] = {}
        self.host = [self._pinned(torch.zeros(setting.cap + 1, dtype=torch.long)) for _ in range(RING)]
        for sequences in setting.sizes:
            self._prepare("decode", sequences)
        self._prepare("prefill", self.chunk)
        self._begin()

    # --- what runs on the device

    def _pinned(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory() if self.cuda else tensor

    def _prepare(self, kind: str, count: int) -> None:
        """Buffers of one batch size, and its work as a graph unless the fault leaves it out."""
        key = (kind, count)
        shape = (count, 2 + self.pages) if kind == "decode" else (1, 2 + self.pages + count)
        buffers = [self._pinned(torch.zeros(shape, dtype=torch.int32)) for _ in range(RING)]
        self.inputs[key] = torch.zeros(shape, dtype=torch.int32, device=self.device), buffers
        self.outputs[key] = torch.zeros(count if kind == "decode" else 1, dtype=torch.long, device=self.device)
        eager = (lambda: self._decode(key)) if kind == "decode" else (lambda: self._prefill(key))
        graphed = self.cuda and not (self.fault == "graph_missed" and kind == "decode" and count > self.set.graphed)
        self.work[key] = self._captured(eager) if graphed else eager

    def _captured(self, eager: Callable[[], None]) -> Callable[[], None]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                eager()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            eager()
        return graph.replay

    def _decode(self, key: tuple[str, int]) -> None:
        given = self.inputs[key][0].long()
        rows, at, table = given[:, 0], given[:, 1], given[:, 2:]
        self._forward(key, self.last[rows], rows, at[:, None], table)

    def _prefill(self, key: tuple[str, int]) -> None:
        given = self.inputs[key][0][0].long()
        row, begin, table, tokens = given[:1], given[1:2], given[None, 2 : 2 + self.pages], given[2 + self.pages :]
        at = begin + torch.arange(key[1], device=self.device)
        self._forward(key, tokens, row, at[None], table)

    def _forward(self, key: tuple[str, int], tokens: Tensor, rows: Tensor, at: Tensor, table: Tensor) -> None:
        """`at`: positions, a row for each sequence. The token after the last of each sequence is its next."""
        slots = (table.gather(1, at // BLOCK) * BLOCK + at % BLOCK).flatten()
        places = torch.arange(self.pages * BLOCK, device=self.device)
        bias = torch.zeros((), dtype=self.dtype, device=self.device)
        bias = torch.where(places <= at[:, :, None], bias, float("-inf")).to(self.dtype)[:, None]
        bias = bias.expand(-1, self.model.size.heads, -1, -1)
        x = self.model.embed(tokens)
        for layer, cache in zip(self.model.layers, self.cache, strict=True):
            x = layer(x, cache, slots, table, bias)
        x = x.view(*at.shape, -1)[:, -1]
        self.logits[key] = self.model.head(self.model.norm(x))
        if self.fault == "sampling_on_host" and key[0] == "decode":
            return
        scores = torch.softmax(self.logits[key].float() / 0.8, -1)
        sampled = scores.div_(torch.empty_like(scores).exponential_()).argmax(-1)
        self.outputs[key].copy_(sampled)
        self.last.index_copy_(0, rows, sampled)

    # --- what the host does in a step

    def _begin(self) -> None:
        """As many requests as may run, each at another place of its output."""
        for place in range(min(self.set.cap, self.set.requests)):
            self._arrive()
            request = self._admit()
            request.done, request.made = self.prompt, 1 + place * (self.output - 2) // self.set.cap
        for _ in range(self.set.requests - self.set.cap):
            self._arrive()

    def _arrive(self) -> None:
        self.number += 1
        self.waiting.append(Request(self.number, time.perf_counter()))

    def _admit(self) -> Request:
        request = self.waiting.popleft()
        request.row = self.rows.pop()
        request.blocks = [self.free.pop() for _ in range(self.pages)]
        self.tables[request.row] = request.blocks
        self.running.append(request)
        return request

    def step(self) -> int:
        """One engine step; how many tokens it makes."""
        reading, decoding = self._schedule()
        tokens = self.chunk * (reading is not None)
        with self.mark(f"execute_context_{int(tokens > 0)}({tokens})_generation_{len(decoding)}({len(decoding)})"):
            if reading is not None:
                self._read(reading)
            if decoding:
                self._generate(decoding)
        self.steps += 1
        while self.pending and self.pending[0].step < self.steps - self.set.ahead:
            self._hand_out(self.pending.popleft())
        self._leave()
        return len(decoding)

    def _schedule(self) -> tuple[Request | None, list[Request]]:
        while self.waiting and len(self.running) < self.set.cap:
            self._admit()
        if self.fault == "scheduler_slow":
            self._look_for_prefixes()
        reading = next((request for request in self.running if request.done < self.prompt), None)
        return reading, [request for request in self.running if request.done == self.prompt]

    def _look_for_prefixes(self) -> None:
        """Which requests share pages: of all pairs, page by page."""
        shared = 0
        for one in self.running:
            for other in self.running:
                for mine, its in zip(one.blocks, other.blocks, strict=True):
                    shared += mine == its and one is not other

    def _read(self, request: Request) -> None:
        key = ("prefill", self.chunk)
        buffer = self._buffer(key)
        buffer[0, :2] = request.row, request.done
        buffer[0, 2 : 2 + self.pages] = self.tables[request.row]
        buffer[0, 2 + self.pages :] = self.random.integers(self.model.size.words, size=self.chunk)
        self._send(key)
        self.work[key]()
        request.done += self.chunk
        if request.done == self.prompt:
            request.made = 1
            self._take_out(key, [request])

    def _generate(self, decoding: list[Request]) -> None:
        key = ("decode", next(size for size in self.set.sizes if size >= len(decoding)))
        if self.fault == "cache_copied":
            self.cache.copy_(self.cache.clone())  # all sequences moved together, and back
        if self.fault == "cache_emptied":
            torch.empty(1 << (10 if not self.cuda else 27), dtype=torch.uint8, device=self.device)
            torch.cuda.empty_cache()
        self._describe(key, decoding)
        self.work[key]()
        if self.fault == "sampling_on_host":
            scores = torch.softmax(self.logits[key].cpu().float() / 0.8, -1)
            self.outputs[key].copy_(torch.multinomial(scores, 1)[:, 0])
            self.last.index_copy_(0, self.inputs[key][0][:, 0].long(), self.outputs[key])
        if self.fault == "logprobs_to_host":
            self.logprobs = torch.log_softmax(self.logits[key].float(), -1).cpu()
        for request in decoding:
            request.made += 1
        if self.fault == "item_per_token":
            now = [int(self.outputs[key][place].item()) for place in range(len(decoding))]
            self.pending.append(Pending(self.steps, list(decoding), torch.tensor(now), None))
        else:
            self._take_out(key, decoding)

    def _describe(self, key: tuple[str, int], decoding: list[Request]) -> None:
        """Row, position and pages of each request to the device; rows of padding write to a page of nobody."""
        if self.fault == "tables_rebuilt":
            rows = [[r.row, self.prompt + r.made - 1, *r.blocks] + [0] * FREE_PAGES for r in decoding]
            rows += [[self.set.cap, 0] + [0] * (self.pages + FREE_PAGES)] * (key[1] - len(decoding))
            table = torch.tensor(rows, dtype=torch.int32)[:, : 2 + self.pages]
            self.inputs[key][0].copy_(table.contiguous().to(self.device))
            return
        buffer = self._buffer(key)
        rows = [request.row for request in decoding]
        buffer[:] = self.set.cap, 0, *[0] * self.pages
        buffer[: len(rows), 0] = rows
        buffer[: len(rows), 1] = [self.prompt + request.made - 1 for request in decoding]
        buffer[: len(rows), 2:] = self.tables[rows]
        self._send(key)

    def _buffer(self, key: tuple[str, int]) -> numpy.ndarray[Any, Any]:
        self.turn += 1
        return self.inputs[key][1][self.turn % RING].numpy()

    def _send(self, key: tuple[str, int]) -> None:
        there, buffers = self.inputs[key]
        there.copy_(buffers[self.turn % RING], non_blocking=True)

    def _take_out(self, key: tuple[str, int], requests: list[Request]) -> None:
        self.turn += 1
        tokens = self.host[self.turn % RING][: len(requests)]
        tokens.copy_(self.outputs[key][: len(requests)], non_blocking=True)
        arrived = torch.cuda.Event() if self.cuda else None
        if arrived is not None:
            arrived.record()
        self.pending.append(Pending(self.steps, list(requests), tokens, arrived))

    def _hand_out(self, pending: Pending) -> None:
        if pending.arrived is not None:
            pending.arrived.synchronize()
        now = time.perf_counter()
        for request, token in zip(pending.requests, pending.tokens.tolist(), strict=True):
            request.seen.append(now)
            if self.fault == "detokenised_in_line":
                self._text_of(request, token)

    def _text_of(self, request: Request, token: int) -> str:
        """All of the last words again, for a word may change with what follows it."""
        words = [self.texts[(token + back) % len(self.texts)] for back in range(WORDS_AGAIN)]
        text = "".join(word.replace("_", " ") for word in words)
        return "".join(letter for letter in text if letter.isprintable())[-16:]

    def _leave(self) -> None:
        for request in [request for request in self.running if request.made >= self.output]:
            self.running.remove(request)
            self.rows.append(request.row)
            self.free += request.blocks
            self.ended.append(request)
            self._arrive()

    def drain(self) -> None:
        while self.pending:
            self._hand_out(self.pending.popleft())
        if self.cuda:
            torch.cuda.synchronize()

    # --- what runs beside it

    @contextmanager
    def beside(self) -> Iterator[None]:
        """A thread that reads the text of requests to come, where that is the fault."""
        if self.fault != "tokenizer_thread":
            yield
            return
        over = threading.Event()
        thread = threading.Thread(target=self._tokenise, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _tokenise(self, over: threading.Event) -> None:
        words = {f"w{index}": index for index in range(997)}
        while not over.is_set():
            until = time.perf_counter() + 0.002
            while time.perf_counter() < until:
                sum(words[f"w{index % 997}"] for index in range(400))
            time.sleep(0.004)


def build(setting: Setting, model: Model, tiny: bool) -> Engine:
    with torch.no_grad():
        engine = Engine(model, setting, tiny)
    gc.collect()
    return engine
