"""The recipes for containers and conda, and what wheels are built for: held to pyproject.toml and rules of hadolint."""

import json
import lzma
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.packaging.image import base, image

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCKERFILE = ROOT / "packaging" / "Dockerfile"
DEMO = ROOT / "src/timesink/cli/demo/gpt_before.json.xz"
CONDA = {"isal": "python-isal"}  # packages that conda-forge calls otherwise


def instructions() -> list[tuple[str, str]]:
    """Every instruction with its words on one line, remarks left out."""
    kept = [line for line in DOCKERFILE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(kept).replace("\\\n", " ")
    return [(word, " ".join(rest.split())) for line in joined.splitlines() for word, _, rest in [line.partition(" ")]]


def test_the_dockerfile_keeps_the_rules_of_hadolint() -> None:
    every = instructions()
    known = {"FROM", "RUN", "WORKDIR", "COPY", "LABEL", "USER", "ENV", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in every} <= known
    bases = [rest for word, rest in every if word == "FROM"]
    assert all(
        re.match(r"docker\.io/library/python:\d+\.\d+-slim-\w+( AS build)?$", base) for base in bases
    )  # DL3006-7
    assert [rest for word, rest in every if word == "USER"][-1] not in ("root", "0")  # DL3002
    assert all(Path(rest).is_absolute() for word, rest in every if word == "WORKDIR")  # DL3000
    for word in ("ENTRYPOINT", "CMD"):  # DL3025
        (form,) = [rest for found, rest in every if found == word]
        assert isinstance(json.loads(form), list)
    for run in (rest for word, rest in every if word == "RUN"):
        assert "sudo" not in run  # DL3004
        if "apt-get install" in run:
            assert all(word in run for word in ("--yes", "--no-install-recommends", "rm -rf /var/lib/apt/lists"))
        if re.search(r"pip (install|wheel)", run):
            assert "--no-cache-dir" in run  # DL3042


def test_the_image_is_made_from_what_the_build_needs() -> None:
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and not rest.startswith("--from")]
    files = [name for names in copied for name in names]
    assert all((ROOT / name).exists() for name in files)
    needed = {"CMakeLists.txt", "pyproject.toml", PROJECT["project"]["readme"], "LICENSE", "native", "src"}
    assert needed <= set(files)
    (installed,) = re.findall(r"\.whl\)\[([\w,]+)\]", DOCKERFILE.read_text())
    assert set(installed.split(",")) <= set(PROJECT["project"]["optional-dependencies"])


@pytest.mark.slow
def test_the_image_is_built_where_docker_runs() -> None:
    if not shutil.which("docker") or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        pytest.skip("no docker engine: the next test does the file's lines in a root of their own")
    subprocess.run(["docker", "build", "-q", "-f", str(DOCKERFILE), "-t", "timesink-test", str(ROOT)], check=True)
    subprocess.run(["docker", "run", "--rm", "timesink-test", "demo"], check=True)


@pytest.mark.slow
def test_the_lines_of_the_container_file_work_as_they_stand(tmp_path: Path) -> None:
    """In a plain Debian with that Python, without an engine: its last stage answers as the user that it names."""
    version, suite = re.findall(
        r"^FROM docker.io/library/python:([\d.]+)-slim-(\w+)", DOCKERFILE.read_text(), re.MULTILINE
    )[0]
    python = shutil.which(f"python{version}")
    if os.geteuid() or not shutil.which("debootstrap") or python is None:
        pytest.skip(f"needs root, debootstrap and Python {version} (apt-get install debootstrap)")
    prefix = [python, "-c", "import sys; print(sys.base_prefix)"]
    found = subprocess.run(prefix, capture_output=True, text=True, check=False)
    if found.returncode or found.stdout.strip() == "/usr":
        pytest.skip(f"python{version} stands in no prefix of its own")
    root = base(tmp_path / "root", suite, Path(found.stdout.strip()))
    kept = {name: os.environ[name] for name in ("PIP_CERT", "SSL_CERT_FILE") if name in os.environ}
    made = image(instructions(), root, ROOT, tmp_path, kept)
    (made.root / "data" / "run.json").write_bytes(lzma.decompress(DEMO.read_bytes()))
    assert made.user == "timesink" and "usage" in made.start().lower()
    assert "input pipeline: GPU 0 is idle for" in made.start("demo")
    assert made.start("diagnose", "run.json").startswith("input pipeline: GPU 0 is idle for")


def test_the_conda_recipe_asks_for_what_the_wheel_asks_for() -> None:
    yaml = pytest.importorskip("yaml", reason="pip install pyyaml: it reads the recipe")
    recipe = yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text())
    asked = [re.split(r"(?=>=)", text, maxsplit=1) for text in PROJECT["project"]["dependencies"]]
    python = f"python {PROJECT['project']['requires-python']}"
    wanted = [python, *(f"{CONDA.get(name, name)} {bound}" for name, bound in asked)]
    assert recipe["requirements"]["run"] == wanted
    build = [text.replace(">=", " >=") for text in PROJECT["build-system"]["requires"]]
    assert recipe["requirements"]["host"] == ["python", "pip", *build]
    assert recipe["context"]["version"] == PROJECT["project"]["version"]
    (entry,) = PROJECT["project"]["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [f"{entry[0]} = {entry[1]}"]
    assert recipe["about"]["license"] == PROJECT["project"]["license"]
    assert recipe["about"]["summary"] == PROJECT["project"]["description"]


def test_the_page_on_installing_names_every_extra() -> None:
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    table = page.partition("| extra |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", re.sub(r"\| [^|]* \|$", "", table, flags=re.MULTILINE))) == set(
        PROJECT["project"]["optional-dependencies"]
    )


def test_every_version_is_the_same() -> None:
    version = PROJECT["project"]["version"]
    assert f'__version__ = "{version}"' in (ROOT / "src" / "timesink" / "__init__.py").read_text()
    server = json.loads((ROOT / "server.json").read_text())
    assert {server["version"], *(one["version"] for one in server["packages"])} == {version}


def test_wheels_are_built_for_every_python_that_is_promised() -> None:
    wheels = PROJECT["tool"]["cibuildwheel"]
    least = int(re.fullmatch(r">=3\.(\d+)", PROJECT["project"]["requires-python"])[1])  # type: ignore[index]
    built = [int(name) for name in re.findall(r"cp3(\d+)-\*", wheels["build"])]
    assert built[0] == least
    assert built == list(range(built[0], built[-1] + 1))
    assert "timesink demo" in wheels["test-command"]
