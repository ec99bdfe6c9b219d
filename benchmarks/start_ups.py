"""Ten programs of different kinds, captured; how much of the time to their first steady step is owned, and by what.

usage: python -m benchmarks.start_ups      # needs PyTorch, transformers, lightning and accelerate; no GPU
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from timesink import capture
from timesink.capture.recorded_run import recorded_run
from timesink.capture.schedule import StepSchedule
from timesink.measures.timeline.start_up_parts import start_up_parts
from timesink.model.trace import Trace

_TRAIN = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(60):
    optimizer.zero_grad()
    model(batch()).sum().backward()
    optimizer.step()
"""
_MODEL = "import torch\nmodel = torch.nn.Linear(64, 64)\nbatch = lambda: torch.randn(8, 64)\n"
_DATA = "data = torch.utils.data.TensorDataset(torch.randn(4000, 64))\n"
PROGRAMS = {
    "a loop of its own": _MODEL + _TRAIN,
    "a loader in the process": f"{_MODEL}{_DATA}batches = iter(torch.utils.data.DataLoader(data, 8))\n"
    f"batch = lambda: next(batches)[0]\n{_TRAIN}",
    "a loader with workers": f"{_MODEL}{_DATA}batches = iter(torch.utils.data.DataLoader(data, 8, num_workers=2))\n"
    f"batch = lambda: next(batches)[0]\n{_TRAIN}",
    "a large model": "import torch\nmodel = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(24)])\n"
    f"batch = lambda: torch.randn(8, 1024)\n{_TRAIN}",
    "a checkpoint that is loaded": f"{_MODEL}"
    "big = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(12)])\n"
    f"torch.save(big.state_dict(), __file__ + '.pt')\nbig.load_state_dict(torch.load(__file__ + '.pt'))\n{_TRAIN}",
    "tokens of its own making": "def tokens():\n    words = [str(n * n) for n in range(900_000)]\n"
    "    return {word: n for n, word in enumerate(sorted(set(words)))}\n"
    f"table = tokens()\n{_MODEL}{_TRAIN}",
    "torch.compile": f"{_MODEL}model = torch.compile(model, backend='aot_eager')\n{_TRAIN}",
    "inference": f"{_MODEL}model.eval()\nwith torch.no_grad():\n    for _ in range(60):\n        model(batch())\n",
    "transformers": "import torch\nfrom transformers import GPT2Config, GPT2LMHeadModel\n"
    "model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=500))\n"
    "ids = torch.randint(0, 500, (2, 32))\noptimizer = torch.optim.AdamW(model.parameters())\n"
    "for _ in range(60):\n    optimizer.zero_grad()\n"
    "    model(ids, labels=ids).loss.backward()\n    optimizer.step()\n",
    "accelerate": f"{_MODEL}from accelerate import Accelerator\n"
    "accelerator = Accelerator(cpu=True)\noptimizer = torch.optim.SGD(model.parameters(), 0.01)\n"
    "model, optimizer = accelerator.prepare(model, optimizer)\nfor _ in range(60):\n    optimizer.zero_grad()\n"
    "    accelerator.backward(model(batch()).sum())\n    optimizer.step()\n",
    "recorded whole": f"{_MODEL}for _ in range(300):\n    batch() @ batch().T\n",
}
STEPS = StepSchedule(settle=5, timed=3, warm_up=1, active=2)


def main() -> None:
    low = []
    for name, text in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as folder:
            script, out = Path(folder) / "train.py", Path(folder) / "out"
            script.write_text(text, encoding="utf-8")
            whole = name == "recorded whole"
            done = capture.torch([sys.executable, str(script)], steps=STEPS, out=out, quiet=True, whole=whole)
            run = recorded_run([done.folder])
            found = start_up_parts(run.told_to(Trace(name, {})))
        owned = min((one.owned_ratio for one in found), default=0.0)
        for one in found:
            parts = ", ".join(f"{': '.join(filter(None, part[:2]))} {part[2] / 1e9:.2f}" for part in one.parts[:5])
            print(f"{name}: {one.span_ns / 1e9:.2f} s, {100 * owned:.1f} % owned ({parts})", flush=True)
        low += [name] if owned < 0.95 else []
    print(f"{len(PROGRAMS) - len(low)} of {len(PROGRAMS)} own 95 % or more; below: {', '.join(low) or 'none'}")


if __name__ == "__main__":
    main()
