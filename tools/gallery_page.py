"""The gallery: ten answers to captures of this repository, as the commands print them today."""

from __future__ import annotations

import lzma
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from benchmarks.faults.pack import unpacked

from command_pages import in_workplace, printed, shortened
from site_pages import DOCS

ROOT: Final = DOCS.parent
FAULTS: Final = "benchmarks/faults/captures"


class Answer(NamedTuple):
    """What is shown: a heading, where its capture lies (a member of an archive after `!`), the command's words before
    the file, and what to look at."""

    heading: str
    capture: str
    command: str
    look: str


ANSWERS: Final = (
    Answer(
        "The loader is late", "demo!gpt_before.json.xz", "diagnose",
        "The first sentence is the verdict; the table says what to do, dearest first.",
    ),
    Answer(
        "The same program with its loader mended", "demo!gpt_after.json.xz", "diagnose",
        "What was second is first now. The measured step went from 10.60 to 8.70 ms.",
    ),
    Answer(
        "A value read in every layer", f"{FAULTS}/item_per_layer.torch.tar.xz!item_per_layer.high.fault.json",
        "diagnose", "A wait of the CPU costs what the GPU then lacks, not how long the wait is.",
    ),
    Answer(
        "Attention written out, seen by Nsight Systems",
        f"{FAULTS}/attention_written_out.nsys.tar.xz!attention_written_out.high.fault.sqlite", "diagnose",
        "Kernels alone show it; no PyTorch profile is needed.",
    ),
    Answer(
        "Most of the optimizer in small kernels",
        f"{FAULTS}/adamw_one_by_one.torch.tar.xz!adamw_one_by_one.high.fault.json", "diagnose",
        "`×` counts places of one advice; gains of several findings do not add up.",
    ),
    Answer(
        "The same with the mended optimizer",
        f"{FAULTS}/adamw_one_by_one.torch.tar.xz!adamw_one_by_one.high.fix.json", "diagnose",
        "What is left is said with its size, also where it is small.",
    ),
    Answer(
        "A CPU that cannot keep up", "tests/data/compile/gc.1.rank0.json.xz", "diagnose",
        "A step that stands out is told apart from the steady ones, with its cause.",
    ),
    Answer(
        "Why a kernel is slow", "benchmarks/kernels/reports/gemm.ncu-rep.xz", "kernels",
        "A limiter for each launch, the nearest roof, and the most that is left to it.",
    ),
    Answer(
        "What to change, in which order", "demo!gpt_before.json.xz", "plan",
        "Each change is priced after those above it.",
    ),
    Answer(
        "What held the memory", "tests/data/memory/gpt_bf16_adamw.pickle.xz", "memory show",
        "The peak by class, and who allocated it.",
    ),
)  # fmt: skip


def gallery_page() -> str:
    """The page."""
    parts = [
        "# Ten answers",
        "What the commands print on captures of this repository, at 100 columns. The captures are in the source, so "
        "every answer can be asked for again.",
    ]
    with in_workplace():
        for answer in ANSWERS:
            name = _unpacked(answer.capture)
            line = f"timesink {answer.command} {name}"
            told = "\n".join(["```text", f"$ {line}", *shortened(printed(line)), "```"])
            where = answer.capture.replace("!", "`, in it `")
            parts += [f"## {answer.heading}", answer.look, told, f"Capture: `{where}`."]
    return "\n\n".join(parts)


def _unpacked(capture: str) -> str:
    """Put the capture into the current folder under its own name."""
    place, _, member = capture.partition("!")
    if place == "demo":
        data, name = files("timesink.cli").joinpath("demo", member).read_bytes(), member
    elif member:
        with TemporaryDirectory() as folder:
            unpacked(ROOT / place, Path(folder))
            data, name = (Path(folder) / member).read_bytes(), member
    else:
        data, name = lzma.decompress((ROOT / place).read_bytes()), Path(place).stem
    Path(name).write_bytes(data)
    return name
