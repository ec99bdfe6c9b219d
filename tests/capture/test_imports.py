"""However a program comes to a module, what waits for it is called once, after the module has run to its end.

The module is a small package that stands for torch; one program imports torch itself, behind libraries that first ask
where it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from timesink.capture.running import agent_environment
from timesink.trials.agent import VARIABLE
from timesink.trials.records import TrialPlan

SOURCE = str(Path(__file__).parents[2] / "src")
PACKAGE = "import os, time\ntime.sleep(0.02)\nfrom standin import part\nis_whole = True\n"
# Python imports this at start-up, as it does the one of a capture.
WAITS = """
import os, sys
sys.path.append({source!r})
from timesink.capture.agent.imports import when_imported

def called():
    import standin
    with open({seen!r}, "a") as file:
        file.write(f"{{os.getpid()}} {{getattr(standin, 'is_whole', False)}}\\n")

when_imported("standin", called)
"""
ASKED = "import importlib.util as u\nassert u.find_spec('standin').origin\n"
WAYS = {
    "at once": "import standin",
    "asked first": ASKED + ASKED + "import standin",
    "asked in a thread": "import threading\nasks = threading.Thread(target=exec, args=("
    + repr(ASKED)
    + ",))\nasks.start()\nasks.join()\nimport standin",
    "lazily": """
import importlib.util as u, sys
spec = u.find_spec("standin")
spec.loader = u.LazyLoader(spec.loader)
module = u.module_from_spec(spec)
sys.modules["standin"] = module
spec.loader.exec_module(module)
assert not open({seen!r}).read()
assert module.is_whole
""",
    "in threads": """
import threading
threads = [threading.Thread(target=__import__, args=("standin",)) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
""",
    "a submodule first": "import standin.part",
    "from it": "from standin import is_whole",
    "reloaded": "import importlib, standin\nimportlib.reload(standin)\nimportlib.reload(standin)",
    "after a failed import": """
import os
os.environ["STANDIN_FAILS"] = "1"
try:
    import standin
except RuntimeError:
    del os.environ["STANDIN_FAILS"]
import standin
""",
    "by its own loader": """
import importlib.util as u, sys
spec = u.find_spec("standin")
module = u.module_from_spec(spec)
sys.modules["standin"] = module
spec.loader.exec_module(module)
""",
    "by runpy": "import runpy, sys\nsys.path.insert(0, {folder!r})\nrunpy.run_module('importing', run_name='__main__')",
    "under another finder": """
import sys
class Other:
    def find_spec(self, name, path=None, target=None):
        if name != "standin" or self not in sys.meta_path:
            return None
        at = sys.meta_path.index(self)
        sys.meta_path.pop(at)
        try:
            import importlib.util
            return importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(at, self)
sys.meta_path.insert(0, Other())
import standin
""",
    "under one that asks all": """
import sys
class Other:
    def find_spec(self, name, path=None, target=None):
        return next((s for f in sys.meta_path if f is not self and (s := f.find_spec(name, path, target))), None)
sys.meta_path.insert(0, Other())
import standin
""",
    "already there": "import standin\nexec(open({waits!r}).read())",
}
CHILDREN = {
    "in a spawned process": "spawn",
    "in a forked process": "fork",
    "in a process of a server": "forkserver",
}
CHILD = """
import multiprocessing

def work():
    import standin

if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    process = context.Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0
"""


def run_way(folder: Path, program: str, *, zipped: bool = False) -> list[str]:
    """What was noted, one line each time that what waits was called."""
    seen, waits, place = folder / "seen", folder / "sitecustomize.py", folder / "packages"
    seen.write_text("")
    waits.write_text(WAITS.format(source=SOURCE, seen=str(seen)))
    fails = "import os\nif os.environ.get('STANDIN_FAILS'): raise RuntimeError\n"
    if zipped:
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr("standin/__init__.py", PACKAGE)
            archive.writestr("standin/part.py", fails)
    else:
        (place / "standin").mkdir(parents=True)
        (place / "standin" / "__init__.py").write_text(PACKAGE)
        (place / "standin" / "part.py").write_text(fails)
    (folder / "importing.py").write_text("import standin\n")
    script = folder / "program.py"
    script.write_text(program.format(seen=str(seen), folder=str(folder), waits=str(waits)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, place)))}
    ran = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert not ran.returncode, ran.stderr
    return seen.read_text().splitlines()


@pytest.mark.parametrize("way", WAYS)
def test_is_called_once_for_any_way_of_importing(way: str, tmp_path: Path) -> None:
    told = run_way(tmp_path, WAYS[way])
    assert [line.split()[1] for line in told] == ["True"] * (2 if way == "already there" else 1)


@pytest.mark.parametrize("way", CHILDREN)
def test_is_called_in_each_process_that_imports(way: str, tmp_path: Path) -> None:
    assert [line.split()[1] for line in run_way(tmp_path, CHILD.format(method=CHILDREN[way]))] == ["True"]


def test_is_called_for_a_module_of_an_archive(tmp_path: Path) -> None:
    assert len(run_way(tmp_path, ASKED + "import standin", zipped=True)) == 1


def test_is_not_called_where_nothing_is_imported(tmp_path: Path) -> None:
    assert run_way(tmp_path, ASKED) == []


@pytest.mark.slow
def test_steps_are_seen_behind_libraries_that_ask_where_torch_is(tmp_path: Path) -> None:
    for name in ("accelerate", "transformers"):
        pytest.importorskip(name)
    script = tmp_path / "program.py"
    script.write_text(
        "import accelerate, transformers, torch\n"
        "model = torch.nn.Linear(4, 4)\n"
        "held = accelerate.Accelerator(cpu=True).prepare(torch.optim.AdamW(model.parameters()))\n"
        "for _ in range(3000):\n"
        "    model(torch.ones(2, 4)).sum().backward()\n"
        "    held.step()\n"
        "    held.zero_grad()\n"
    )
    file = tmp_path / "result.json"
    environment = {**os.environ, **agent_environment(TrialPlan(str(file)).to_json(), variable=VARIABLE)}
    ran = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False, timeout=180
    )
    assert not ran.returncode, ran.stderr
    found = json.loads(file.read_text())
    assert found["mark"] == "optimizer" and len(found["steps_ms"]) > 1  # pieces of 30 steps
