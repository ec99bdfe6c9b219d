"""Install the wheel of a folder into a fresh environment and use it as somebody who downloaded it would.

python tools/check_wheel.py dist
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
MADE = (".so", ".pyd")
MB, VENV_MB, IMPORT_MS = 3.0, 400.0, 1.0
OWN = ("pip", "setuptools", "_distutils_hack")  # what every environment has
LICENCES = ("LICENSE", "uPlot-LICENSE.txt")


def needed() -> list[str]:
    """Every file of the package as the wheel names it: modules, types, schemas, templates, the captures of the demo."""
    files = (path.relative_to(SOURCE) for path in (SOURCE / "timesink").rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in files if path.suffix not in MADE and "__pycache__" not in path.parts)


def missing(wheel: Path) -> list[str]:
    """What the wheel lacks: files it needs, and the licences of what it brings along."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    licences = [name for name in LICENCES if not any(".dist-info/" in kept and kept.endswith(name) for kept in names)]
    native = [] if any(name.startswith("timesink/_native.") for name in names) else ["timesink/_native"]
    return [name for name in needed() if name not in names] + licences + native


def used(wheel: Path, folder: Path) -> str:
    """The answer that a fresh machine gives after three commands in an empty folder: make an environment, install, ask.

    Raises `CalledProcessError` where a command fails.
    """
    programs, trace = folder / "env" / "bin", SOURCE / "timesink" / "cli" / "demo" / "gpt_before.json.xz"
    asked = [programs / "timesink", trace]
    for command in ([sys.executable, "-m", "venv", "env"], [programs / "pip", "install", "-qq", wheel.resolve()]):
        subprocess.run(command, check=True, cwd=folder)
    answer = subprocess.run(asked, check=True, cwd=folder, capture_output=True, text=True).stdout
    subprocess.run([*asked, "--output", "report.html"], check=True, cwd=folder)
    if "uPlot" not in (folder / "report.html").read_text("utf-8"):
        raise SystemExit("the report holds no chart library")
    return answer


def sizes(wheel: Path, folder: Path) -> dict[str, tuple[float, float]]:
    """Of the wheel, what it brought into the environment of `used`, and `import timesink`: how much, and at most.

    The import in CPU time: a busy machine took eight times as long by the clock on the wall.
    """
    brought = [
        path for path in (folder / "env" / "lib").glob("*/site-packages/*") if path.name.partition("-")[0] not in OWN
    ]
    files = (path for root in brought for path in (root, *root.rglob("*")) if path.is_file() and path.suffix != ".pyc")
    installed = sum(path.stat().st_size for path in files)
    timed = "import time; t = time.process_time(); import timesink; print(1e3 * (time.process_time() - t))"
    asked = [folder / "env" / "bin" / "python", "-c", timed]
    runs = [subprocess.run(asked, check=True, cwd=folder, capture_output=True, text=True) for _ in range(5)]
    return {
        "wheel, MB": (wheel.stat().st_size / 1e6, MB),
        "installed beside pip, without bytecode, MB": (installed / 1e6, VENV_MB),
        "import timesink, ms": (min(float(run.stdout) for run in runs), IMPORT_MS),
    }


def main(folder: Path) -> None:
    (wheel,) = folder.glob("*.whl")
    if lacks := missing(wheel):
        raise SystemExit(f"{wheel.name} lacks {', '.join(lacks)}")
    with tempfile.TemporaryDirectory() as scratch:
        print(used(wheel, Path(scratch)))
        figures = sizes(wheel, Path(scratch))
    for name, (value, most) in figures.items():
        print(f"{name}: {value:.3g} (at most {most:g})")
    if over := [name for name, (value, most) in figures.items() if value > most]:
        raise SystemExit(f"too large: {', '.join(over)}")
    print(f"{wheel.name}: installed, ran, reported")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
