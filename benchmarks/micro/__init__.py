"""Micro benchmarks of single functions: `python -m benchmarks.micro [NAME...]`.

One file and one row in `BENCHMARKS` add one. A file offers `cases()`, which prepares what is needed and yields pairs of
a label and a call without arguments, whose result is thrown away.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

BENCHMARKS: Mapping[str, str] = MappingProxyType(
    {
        "json": "benchmarks.micro.json_bodies",
        "big": "benchmarks.micro.big_prompt",
        "planning": "benchmarks.micro.planning",
        "content": "benchmarks.micro.content",
        "ledger": "benchmarks.micro.ledger",
    }
)
