"""Prints nanoseconds per call; `--json` prints {benchmark: {case: nanoseconds}}."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module

from benchmarks.micro import BENCHMARKS
from benchmarks.micro.timing import nanoseconds


def measured(name: str) -> Iterator[tuple[str, float]]:
    """Label and nanoseconds per call of each case."""
    for label, call in import_module(BENCHMARKS[name]).cases():
        yield label, nanoseconds(call)


def main(argv: Sequence[str]) -> int:
    """Runs the named benchmarks, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; default all")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    names = arguments.names or list(BENCHMARKS)
    if arguments.json:
        print(json.dumps({name: {label: round(value, 1) for label, value in measured(name)} for name in names}))
        return 0
    for name in names:
        print(name)
        for label, value in measured(name):
            print(f"  {label:40} {value:14,.0f} ns", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
