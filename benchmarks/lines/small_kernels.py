"""Eight branches of small kernels: on one stream, on several, in a CUDA graph, and (control) each after the other."""

import torch

BRANCHES, DEPTH = 8, 4


def make(kind, streams=1):
    rows = [torch.rand(16, 1 << 16, device="cuda") for _ in range(BRANCHES)]
    pool = [torch.cuda.Stream() for _ in range(streams)] if streams > 1 else []

    def branch(x):
        for _ in range(DEPTH):
            x = torch.softmax(x, 1)
        return x

    def work():
        if kind == "dependent":
            x = rows[0]
            for _ in range(BRANCHES):
                x = branch(x)
            return x
        if not pool:
            return [branch(x) for x in rows]
        current = torch.cuda.current_stream()
        for stream in pool:
            stream.wait_stream(current)
        out = []
        for number, x in enumerate(rows):
            with torch.cuda.stream(pool[number % len(pool)]):
                out.append(branch(x))
        for stream in pool:
            current.wait_stream(stream)
        return out

    if kind != "graph":
        return work
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = work()
    return lambda: (graph.replay(), kept)[1]


def make_tiny():
    """Hundreds of kernels of few microseconds in a graph: the device is busy, and with little."""
    x = torch.rand(64, 1024, device="cuda")

    def work():
        y = x
        for _ in range(150):
            y = y * 0.999
            y = y + 0.001
        return y

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = work()
    return lambda: (graph.replay(), kept)[1]


def make_metrics(kind):
    """For sampled counters: a device that is busy with little, with memory, with products."""
    if kind == "low_activity":
        rows = torch.randn(8, 1 << 20, device="cuda")
        return lambda: torch.cumsum(rows, 1)
    if kind == "memory_bound":
        rows = torch.randn(1 << 28, device="cuda")
        return lambda: rows.mul_(1.0001)
    weight = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    return lambda: torch.mm(weight, weight)
