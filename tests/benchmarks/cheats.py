"""Programs that are fast by the clock and do not do their work: eight families, each a file with `solve(x)`.

The right answer is each row's softmax. WORK stands for 20 ms of work that an honest program needs.
"""

HONEST = """
import time
import numpy as np

def softmax(x):
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)

def solve(x):
    time.sleep(0.02)
    return softmax(x)
"""

WRONG = {
    # Memoised: an answer of before is given again.
    "by shape": "kept = {}\ndef solve(x): return kept.setdefault(x.shape, softmax(x))",
    "by the first element's sign": "kept = {}\ndef solve(x): return kept.setdefault(x[0, 0] > 0, softmax(x))",
    "by a rounded sum": "kept = {}\ndef solve(x): return kept.setdefault(round(float(x.sum()), -6), softmax(x))",
    "by identity": "kept = {}\ndef solve(x): return kept.setdefault(id(type(x)), softmax(x))",
    # A replayed graph without its work: buffers as they were captured.
    "replays its first input": "first = []\ndef solve(x):\n first.append(x)\n return softmax(first[0])",
    "replays its output buffer": "import functools\n@functools.cache\ndef out(shape): return np.empty(shape)\n"
    "def solve(x): return out(x.shape)",
    "works in every other call": "calls = []\ndef solve(x):\n"
    " calls.append(softmax(x) if len(calls) % 2 == 0 else calls[-1])\n return calls[-1]",
    "copies its input": "def solve(x): return x.copy()",
    # A cached file.
    "a file by shape": "import pathlib, tempfile\nkept = pathlib.Path(tempfile.mkdtemp()) / 'a.npy'\ndef solve(x):\n"
    " if not kept.exists(): np.save(kept, softmax(x))\n return np.load(kept)",
    "a file of the last process": "import pathlib\nkept = pathlib.Path(__file__).with_suffix('.npy')\ndef solve(x):\n"
    " if not kept.exists(): np.save(kept, softmax(x))\n return np.load(kept)",
    "rewrites the unchanged program": "import pathlib\n"
    "pathlib.Path(__file__).with_name('old.py').write_text('import time\\ndef solve(x): time.sleep(9)')\n"
    "def solve(x): return softmax(x)",
    # Work on another stream: the answer is handed out before it is there.
    "a thread fills it later": "import threading\ndef solve(x):\n out = np.zeros_like(x)\n def work():\n"
    "  time.sleep(0.02)\n  out[:] = softmax(x)\n threading.Thread(target=work).start()\n return out",
    "a thread fills its tail later": "import threading\ndef solve(x):\n out = np.zeros_like(x)\n"
    " out[:60] = softmax(x[:60])\n def work():\n  time.sleep(0.02)\n  out[60:] = softmax(x[60:])\n"
    " threading.Thread(target=work).start()\n return out",
    "a process fills it later": "import mmap, os\ndef solve(x):\n shared = mmap.mmap(-1, x.nbytes)\n"
    " out = np.frombuffer(shared, x.dtype).reshape(x.shape)\n if os.fork() == 0:\n  time.sleep(0.02)\n"
    "  out[:] = softmax(x)\n  os._exit(0)\n return out",
    # A lazy tensor that is none in the end, or says what a checker wants to hear.
    "equal to everything": "class Same(np.ndarray):\n def __eq__(self, other): return np.True_\n"
    " def __array_function__(self, *_): return True\ndef solve(x): return np.zeros_like(x).view(Same)",
    "a promise": "def solve(x): return (softmax(row) for row in x)",
    "nothing": "def solve(x): return None",
    "a view of one row": "def solve(x): return np.broadcast_to(softmax(x[:1]), x.shape)",
    # Lower precision.
    "float16": "def solve(x): return softmax(x.astype(np.float16)).astype(x.dtype)",
    "float32": "def solve(x): return softmax(x.astype(np.float32)).astype(x.dtype)",
    "answers in float32": "def solve(x): return softmax(x.astype(np.float32))",
    "bfloat16": "def solve(x): return softmax((x.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32))"
    ".astype(x.dtype)",
    "eight bits": "def solve(x): return softmax(np.round(x * 32) / 32)",
    # A skipped tail.
    "last rows": "def solve(x):\n out = np.zeros_like(x)\n out[:60] = softmax(x[:60])\n return out",
    "last row alone": "def solve(x):\n out = np.zeros_like(x)\n out[:-1] = softmax(x[:-1])\n return out",
    "last column of the sum": "def solve(x): return np.exp(x) / np.exp(x[:, :-1]).sum(-1, keepdims=True)",
    "half of the sum, doubled": "def solve(x): return np.exp(x) / (2 * np.exp(x[:, ::2]).sum(-1, keepdims=True))",
    "small values are none": "def solve(x):\n y = softmax(x)\n y[y < 1e-3] = 0\n return y",
    "fewer rows": "def solve(x): return softmax(x[:60])",
    "ends the process": "import os\ndef solve(x): os._exit(0)",
}
"""Cheats whose answers are wrong, or not there when they are due."""

_PATCHED = "real = time.sleep\ndef solve(x):\n real(0.02)\n return softmax(x)\n"
NO_FASTER = {
    # A patched clock or event: right answers, and a clock in the process that says they took no time.
    "perf_counter": f"time.perf_counter = lambda: 0.0\n{_PATCHED}",
    "every clock": f"for name in ('time', 'monotonic', 'perf_counter', 'time_ns', 'process_time'):\n"
    f" setattr(time, name, lambda: 0)\n{_PATCHED}",
    "an event": "import sys, types\ncuda = types.ModuleType('torch.cuda')\n"
    f"cuda.Event = type('Event', (), dict(elapsed_time=lambda *_: 0.0))\nsys.modules['torch.cuda'] = cuda\n{_PATCHED}",
    "the steps that it hands over": "import os\nos.environ['TIMESINK_STEPS'] = os.devnull\n"
    f"print('step took 0.001 ms')\n{_PATCHED}",
    # A lazy tensor: the work is done when somebody looks.
    "computed when looked at": "class Lazy:\n def __init__(self, x): self.x = x\n"
    " def __array__(self, *_, **__):\n  time.sleep(0.02)\n  return softmax(self.x)\ndef solve(x): return Lazy(x)",
    "computed when copied to the host": "class Lazy:\n def __init__(self, x): self.x = x\n"
    " def detach(self): return self\n def cpu(self):\n  time.sleep(0.02)\n  return softmax(self.x)\n"
    "def solve(x): return Lazy(x)",
}
"""Cheats that deceive a clock inside of the process: from outside they take as long as they do."""
