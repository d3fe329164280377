"""Why an engine did not come up: one plain line, out of its exit code and the last lines of its log.

vLLM's own last line is nearly always "Engine core initialization failed"; the cause stands some hundred lines above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from serving.engine.causes import CAUSES

LABEL = re.compile(r"^\(\w+ pid=\d+\) (?:(?P<level>[A-Z]+) [\d-]+ [\d:]+ \[[\w.]+:\d+\] ?)?")
"""What vLLM puts before a line of its log."""
ERROR = re.compile(r"^(?:[A-Za-z_][\w.]*(?:Error|Exception)\b|[\w.]+: error: |\s*Value error, |\s*Input should be )")
GENERIC = re.compile(r"Engine core initialization failed|Failed core proc|\d+ validation errors? for|EngineDeadError")
"""Errors that only say that there was another one."""
CONTEXT = re.compile(r"\s*\[type=\w+, input_value=.*")
"""What pydantic appends to a message."""
LONGEST = 400
SILENT = "a part of it ended without a word, as when the system kills it because memory runs out; see its log above"

EXITS: Mapping[int, str] = MappingProxyType(
    {
        132: "it was ended by signal 4: this vLLM build uses instructions that this processor lacks",
        134: "it aborted (signal 6)",
        137: "it was killed (signal 9), as the system does when memory runs out; free memory, or use a smaller model",
        139: "it crashed (signal 11) in native code",
    }
)


def diagnose(tail: Iterable[str], code: int) -> str:
    """One line for people. `tail` is the end of the log, `code` the exit code, 128 + n for signal n."""
    lines = [line for line in map(_bare, tail) if line]
    text = "\n".join(lines)
    for cause in CAUSES:
        if found := cause.pattern.search(text):
            return found.expand(f"{cause.reason}; {cause.remedy}")
    return EXITS.get(code) or f"it ended with exit code {code}: {_last_error(lines)}"


def _bare(line: str) -> str:
    """A line without vLLM's label; nothing for what is only information, a warning or a call in a traceback.

    A warning may quote an error that has not happened, such as the one about the number of open files.
    """
    label = LABEL.match(line)
    if label and label["level"] not in (None, "ERROR", "CRITICAL"):
        return ""
    return line[label.end() :] if label else line


def _last_error(lines: list[str]) -> str:
    errors = [line for line in lines if ERROR.match(line)]
    telling = [line for line in errors if not GENERIC.search(line)]
    if telling:
        return CONTEXT.sub("", telling[-1]).strip()[:LONGEST]
    return SILENT if errors else "it left no error message, see its log above"
