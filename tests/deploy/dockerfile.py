"""A Dockerfile as its instructions, for tests that look at them or replay them."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deploy.expressions import ROOT

DOCKERFILES = sorted((ROOT / "deploy" / "docker").glob("*.Dockerfile"))


@dataclass(frozen=True)
class Instruction:
    """`RUN`, and what follows it on its line and the continued ones."""

    name: str
    text: str

    def listed(self) -> list[str]:
        """The exec form."""
        listed: list[str] = json.loads(self.text)
        return listed

    def words(self) -> list[str]:
        """The words, without flags such as `--from=build`."""
        return [word for word in shlex.split(self.text) if not word.startswith("--")]


def stages(file: Path) -> list[list[Instruction]]:
    """The instructions of each stage; each begins with its FROM."""
    found: list[list[Instruction]] = []
    lines = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, text = line.partition(" ")
            if name == "FROM":
                found.append([])
            found[-1].append(Instruction(name, text))
    return found


def last(stage: list[Instruction], name: str) -> str:
    """The text of the last such instruction. KeyError if there is none."""
    return {instruction.name: instruction.text for instruction in stage}[name]


def environment(stage: list[Instruction]) -> dict[str, str]:
    """What ENV sets."""
    pairs: list[Any] = [w.split("=", 1) for i in stage if i.name == "ENV" for w in i.words()]
    return dict(pairs)


def health_command(stage: list[Instruction]) -> list[str]:
    """The command of HEALTHCHECK."""
    listed: list[str] = json.loads(last(stage, "HEALTHCHECK").split(" CMD ", 1)[1])
    return listed
