"""Runs a composite action of GitHub as its runner does: conditions, expressions, environments, outputs, exit codes.

It knows what our action uses, and refuses what it does not know; actions of others are noted, not run.
"""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_EXPRESSION = re.compile(r"\$\{\{ *([\w.-]+) *\}\}")
_TERM = re.compile(r"(always\(\))|([\w.-]+) (==|!=) '([^']*)'")


@dataclass
class Job:
    """A run of the action in a folder. `used` are the steps that other actions would do, with their inputs."""

    folder: Path
    environment: Mapping[str, str]
    context: dict[str, str]
    used: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    failed: int = 0

    def run(self, action: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
        """Every step in order; the outputs of the action. An input that the action does not declare is refused."""
        declared = action["inputs"]
        assert set(given) <= set(declared), set(given) - set(declared)
        for name, one in declared.items():
            self.context[f"inputs.{name}"] = given.get(name, self.filled(str(one.get("default", ""))))
        for step in action["runs"]["steps"]:
            self.step(step)
        return {name: self.filled(one["value"]) for name, one in action["outputs"].items()}

    def step(self, step: Mapping[str, Any]) -> None:
        condition = step.get("if", "")
        if (self.failed and "always()" not in condition) or not self._holds(condition):
            return
        if "uses" in step:
            self.used.append((step["uses"], {name: self.filled(value) for name, value in step["with"].items()}))
            return
        assert "${{" not in step["run"], "an expression in a script runs whatever an input says"
        assert step["shell"] == "bash"
        output = self.folder / ".output"
        output.write_text("")
        own = {name: self.filled(value) for name, value in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder, env={**self.environment, "GITHUB_OUTPUT": str(output), **own}, check=False,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            self.context[f"steps.{step['id']}.outputs.{name}"] = value
        self.failed = self.failed or done.returncode

    def filled(self, text: str) -> str:
        """The text with its expressions replaced; what was never set is empty, as on GitHub."""
        return _EXPRESSION.sub(lambda found: self.context.get(found[1], ""), text)

    def _holds(self, condition: str) -> bool:
        for term in condition.split(" && ") if condition else []:
            known = _TERM.fullmatch(term.strip())
            assert known, f"not understood: {term}"
            always, name, how, value = known.groups()
            if not always and (self.context.get(name, "") == value) != (how == "=="):
                return False
        return True
