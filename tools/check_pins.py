"""Check that each action a workflow uses is pinned to the commit that its repository's tag names.

python tools/check_pins.py            # asks github.com; --from 'file:///mirrors/{}' asks copies
"""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path

WORKFLOWS = Path(__file__).resolve().parent.parent / ".github" / "workflows"
_USE = re.compile(r"uses:\s*(\S+?)@(\S+)(?:\s*#\s*(\S+))?")


def pins(workflows: Path = WORKFLOWS) -> set[tuple[str, str, str]]:
    """(action, commit, tag) of each use; the tag is "" where no comment names one."""
    texts = (path.read_text("utf-8") for path in sorted(workflows.glob("*.yml")))
    return {(name, commit, tag or "") for text in texts for name, commit, tag in _USE.findall(text)}


def commits_of(listed: str, tag: str) -> set[str]:
    """What `git ls-remote` lists for a tag; of an annotated one the commit that it stands for (``^{}``)."""
    rows = [line.split() for line in listed.splitlines()]
    return {row[0] for row in rows if row[1:] in ([f"refs/tags/{tag}"], [f"refs/tags/{tag}^{{}}"])}


def wrong(used: set[tuple[str, str, str]], place: str) -> list[str]:
    """One sentence for each pin that is none, or whose tag is another commit."""
    said = []
    for name, commit, tag in sorted(used):
        if not re.fullmatch("[0-9a-f]{40}", commit) or not tag:
            said.append(f"{name}@{commit} is no commit with its tag behind it")
            continue
        repository = place.format("/".join(name.split("/")[:2]))
        command = ["git", "ls-remote", "--tags", repository, f"refs/tags/{tag}*"]
        listed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
        if commit not in commits_of(listed, tag):
            said.append(f"{name}: {tag} is {' or '.join(commits_of(listed, tag)) or 'no tag'}, not {commit}")
    return said


def main() -> int:
    """0 where all pins are right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="place", default="https://github.com/{}", metavar="URL")
    said, used = wrong(pins(), parser.parse_args().place), pins()
    print("\n".join(said) or f"{len(used)} pins are the commits of their tags")
    return 1 if said else 0


if __name__ == "__main__":
    raise SystemExit(main())
