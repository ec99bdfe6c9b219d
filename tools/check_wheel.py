"""Install the wheel of a folder into a fresh environment and use it as somebody who downloaded it would.

python tools/check_wheel.py dist
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
MADE = (".pyc", ".so", ".pyd")
LICENCES = ("LICENSE", "uPlot-LICENSE.txt")


def needed() -> list[str]:
    """Every file of the package as the wheel names it: modules, types, schemas, templates, the captures of the demo."""
    files = (path for path in (SOURCE / "timesink").rglob("*") if path.is_file() and path.suffix not in MADE)
    return sorted(path.relative_to(SOURCE).as_posix() for path in files)


def missing(wheel: Path) -> list[str]:
    """What the wheel lacks: files it needs, and the licences of what it brings along."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    licences = [name for name in LICENCES if not any(".dist-info/" in kept and kept.endswith(name) for kept in names)]
    native = [] if any(name.startswith("timesink/_native.") for name in names) else ["timesink/_native"]
    return [name for name in needed() if name not in names] + licences + native


def used(wheel: Path, folder: Path) -> None:
    """Raises `CalledProcessError` where the installed command fails."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel.resolve()], check=True)
    command, report = folder / "venv" / "bin" / "timesink", folder / "report.html"
    subprocess.run([command, "--version"], check=True, cwd=folder)
    subprocess.run([command, "demo"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    where = subprocess.run(
        [python, "-c", "import timesink; print(timesink.__path__[0])"],
        check=True, cwd=folder, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    trace = Path(where) / "cli" / "demo" / "gpt_before.json.gz"
    subprocess.run([command, "diagnose", trace, "--format", "html", "--output", report], check=True, cwd=folder)
    if "uPlot" not in report.read_text("utf-8"):
        raise SystemExit("the report holds no chart library")


def main(folder: Path) -> None:
    (wheel,) = folder.glob("*.whl")
    if lacks := missing(wheel):
        raise SystemExit(f"{wheel.name} lacks {', '.join(lacks)}")
    with tempfile.TemporaryDirectory() as scratch:
        used(wheel, Path(scratch))
    print(f"{wheel.name}: installed, ran, reported")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
