"""Write the parts of a released wheel as a CycloneDX document: Python packages, and what is vendored.

python tools/write_sbom.py dist        # writes dist/timesink.cdx.json
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).resolve().parent.parent / "src" / "timesink" / "render" / "html" / "assets"


def packages(wheel: Path) -> dict[str, Any]:
    """The document of the packages that an installation of the wheel brings."""
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True)
        python = Path(scratch) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", wheel.resolve()], check=True)
        subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools"], check=True)
        command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", str(python)]
        document: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    for part in document["components"]:  # where the wheel lay on this machine is nobody's business
        part.pop("externalReferences", None) if part["name"] == "timesink" else None
    return document


def vendored() -> dict[str, Any]:
    """The one library that is vendored: the charts of HTML reports."""
    script = (ASSETS / "uPlot.iife.min.js").read_bytes()
    version = re.search(rb"v(\d+\.\d+\.\d+)", script[:400])
    if version is None:
        raise SystemExit("uPlot.iife.min.js does not say its version")
    number = version[1].decode()
    return {
        "type": "library",
        "bom-ref": f"pkg:npm/uplot@{number}",
        "name": "uplot",
        "version": number,
        "purl": f"pkg:npm/uplot@{number}",
        "licenses": [{"license": {"id": "MIT"}}],
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(script).hexdigest()}],
    }


def main(folder: Path) -> None:
    (wheel,) = folder.glob("*.whl")
    document = packages(wheel)
    document["components"].append(vendored())
    target = folder / "timesink.cdx.json"
    target.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", "utf-8")
    print(f"{target}: {len(document['components'])} components")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
