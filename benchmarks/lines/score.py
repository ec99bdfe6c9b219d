"""Whether the first finding of each recorded program is at a line marked `# SLOW`: `score.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import timesink
from timesink.diagnosis.engine import diagnose

PROGRAMS = Path(__file__).parent / "programs"


def marked_lines(program: Path) -> frozenset[int]:
    """The numbers of the lines that are marked."""
    return frozenset(at for at, text in enumerate(program.read_text().splitlines(), 1) if text.endswith("# SLOW"))


def function_of(program: Path, line: int) -> int:
    """The line on which the function that holds a line begins."""
    lines = program.read_text().splitlines()[:line]
    return max((at for at, text in enumerate(lines, 1) if text.startswith("def ")), default=0)


def place(recorded: Path) -> tuple[str | None, int | None, str]:
    """File and line of the first finding, and its rule."""
    findings = diagnose(timesink.read(recorded)).findings
    if not findings:
        return None, None, "no finding"
    card, finding = findings[0]
    return finding.where.file, finding.where.line, card.name


def main() -> None:
    """One line a program, and the score."""
    found = {"line": 0, "function": 0}
    folder = Path(sys.argv[1])
    for program in sorted(PROGRAMS.glob("*.py")):
        for recorded in (folder / f"{program.stem}.json", folder / f"nsys-{program.stem}.sqlite"):
            if not recorded.exists():
                continue
            file, line, rule = place(recorded)
            marked = marked_lines(program)
            same = file is not None and Path(file).name == program.name and line is not None
            verdict = "elsewhere"
            if same and line in marked:
                verdict = "line"
            elif same and line in {function_of(program, at) for at in marked}:
                verdict = "function"
            if verdict in found:
                found[verdict] += 1
            print(f"{recorded.name:34} {verdict:10} {file}:{line} ({rule})")
    print(f"at the line: {found['line']}, at the first line of its function: {found['function']}")


if __name__ == "__main__":
    main()
