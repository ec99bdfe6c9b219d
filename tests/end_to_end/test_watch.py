"""`timesink report --watch`: what is read and when, what is not, and the index page, which is whole at any moment."""

import gzip
import json
import os
import time
from importlib.resources import files
from pathlib import Path

import lxml.html
import pytest

from timesink.cli.app import run
from timesink.cli.watch import FolderWatch, Settling, places

PACKED = files("timesink.cli").joinpath("demo/gpt_before.json.gz").read_bytes()
TEXT = gzip.decompress(PACKED)
Captured = pytest.CaptureFixture[str]


def aged(path: Path, seconds: float = 60.0) -> Path:
    """The file, last written so long ago."""
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A whole trace, one cut short, a file that is no profile, a capture under way, and something hidden."""
    for name, content in {
        "good.json.gz": PACKED,
        "bad/cut.json.gz": PACKED[:5000],
        "bad/broken.json": b'{"traceEvents": 7}',
        "config.json": b'{"lr": 0.1}',
        "now/rank0.json": TEXT,
        ".hidden/rank0.json": TEXT,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
        aged(tmp_path / name)
    (tmp_path / "now/ranks").mkdir()
    return tmp_path


def rows(root: Path) -> dict[str, dict[str, object]]:
    found = [json.loads(path.read_text()) for path in (root / "timesink").glob("*.json")]
    return {row["name"]: row for row in found}


def test_one_look_diagnoses_what_is_whole_and_names_what_is_not(root: Path, capsys: Captured) -> None:
    assert run(["report", "--watch", str(root), "--once"]) == 0
    out, err = capsys.readouterr()
    assert "good.json.gz: input pipeline: " in out
    assert "skipped: " in err and "broken.json at byte 16" in err
    kept = rows(root)
    assert sorted(kept) == ["bad/broken.json", "bad/cut.json.gz", "good.json.gz"]
    assert kept["good.json.gz"]["bottleneck"] == "input_pipeline"
    assert "IDL101 saves 1.75 ms (16.9 % of the unprofiled step)" in str(kept["good.json.gz"]["saves"])
    assert str(kept["bad/cut.json.gz"]["statement"] or kept["bad/cut.json.gz"]["error"])
    page = lxml.html.parse(str(root / "timesink/index.html"))
    assert page.xpath("//td/a/@href")
    assert all((root / "timesink" / target).is_file() for target in page.xpath("//td/a/@href"))
    assert "broken.json" in page.xpath("string(//section[@aria-label='Not diagnosed'])")
    # Nothing is read twice; what changes is read again.
    assert run(["report", "--watch", str(root), "--once"]) == 0
    index = root / "timesink" / "index.html"
    said = f"timesink: 3 captures in {root}, 0 new, 2 that cannot be read; {index} lists all\n"
    assert capsys.readouterr() == ("", said)
    (root / "bad/broken.json").write_bytes(TEXT)
    aged(root / "bad/broken.json")
    assert run(["report", "--watch", str(root), "--once", "--name", "bad/broken.json"]) == 0
    assert not rows(root)["bad/broken.json"]["error"]


def test_a_file_that_grows_is_left_until_it_rests(tmp_path: Path) -> None:
    growing = tmp_path / "run.json.gz"
    growing.write_bytes(PACKED[:1000])
    watch, settling = FolderWatch(tmp_path, tmp_path / "timesink", frozenset(), ()), Settling(0.2)
    for size in (2000, 3000):
        assert watch.look(settling)
        time.sleep(0.15)
        growing.write_bytes(PACKED[:size])
    growing.write_bytes(PACKED)
    assert watch.look(settling) and not rows(tmp_path)
    time.sleep(0.25)
    assert not watch.look(settling)
    assert rows(tmp_path)["run.json.gz"]["bottleneck"] == "input_pipeline"


def test_a_capture_is_whole_once_its_manifest_fits_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "step5"
    (folder / "ranks").mkdir(parents=True)
    (folder / "rank0.json").write_bytes(TEXT)
    assert not places(tmp_path, tmp_path / "timesink")  # its manifest is written last
    manifest = {"timesink_manifest": 1, "files": [{"file": "rank0.json", "bytes": len(TEXT)}]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (place,) = places(tmp_path, tmp_path / "timesink")
    assert place.name == "step5" and Settling(3600.0).is_ready(place)
    (folder / "rank0.json").write_bytes(TEXT[:100])
    (place,) = places(tmp_path, tmp_path / "timesink")
    assert not Settling(3600.0).is_ready(place)


@pytest.mark.parametrize("files_of_it", [7, [{"file": "../secret.json", "bytes": 1}], [{"bytes": 1}]])
def test_a_manifest_of_anybody_leads_nowhere(tmp_path: Path, files_of_it: object) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"timesink_manifest": 1, "files": files_of_it}))
    assert [place.name for place in places(tmp_path, tmp_path / "timesink")] == ["manifest.json"]


def test_names_of_a_folder_are_text_in_the_index(tmp_path: Path) -> None:
    hostile = tmp_path / "<script>alert(1)<%2Fscript>&\x1b]8;;x\x07.json"
    hostile.write_bytes(b'{"traceEvents": 7}')
    aged(hostile)
    assert run(["report", "--watch", str(tmp_path), "--once"]) == 0
    text = (tmp_path / "timesink/index.html").read_text()
    assert "<script>alert" not in text and "\x1b" not in text


def test_figures_go_to_tensorboard(root: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed (pip install tensorboard)")
    assert run(["report", "--watch", str(root), "--once", "--log", "tensorboard", "--name", "good.json.gz"]) == 0
    assert any(path.name.startswith("events.out") for path in (root / "timesink").iterdir())
