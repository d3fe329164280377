"""One plan: a parsed call through a route's rules to its attempts, for few and many rules, with and without content.

No rule holds, so each one is asked, as for the call that a route's default is for. `later turn` is the exception: its
conversation has a pin, and no rule is asked.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.bodies import chat_body
from benchmarks.micro.timing import Cases
from gateway.call import Call, Caller
from gateway.config import Runtime, load
from gateway.routing.pins import Pins
from gateway.wiring import call_of, planner

COUNTS = (10, 200)
PROMPTS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"1 KB": (1_024, 2), "30 KB in 21 messages": (30_000, 21), "30 KB in one message": (30_000, 1)}
)
"""Label -> bytes and messages."""
_TASKS = ("refactor", "implement", "test", "review", "explain", "chat", "agent")
"""None that the classifier finds in one of the prompts."""

When = Callable[[int], dict[str, Any]]
KINDS: Mapping[str, When] = MappingProxyType(
    {
        "header, metadata, team, size": lambda n: (
            {"header": {"x-app": f"app-{n}"}},
            {"metadata": {"project": f"project-{n}"}},
            {"team": [f"team-{n}"]},
            {"prompt_tokens": {"over": 100_000 - n}},
        )[n % 4],
        "keywords": lambda n: {"keywords": [f"keyword{n}", f"stack trace {n}", f"迁移{n}"]},
        "regex": lambda n: {"regex": rf"(?i)\bticket[- ]?{n}\d{{3,}}\b"},
        "task": lambda n: {"task": [_TASKS[n % len(_TASKS)]], "messages": {"under": 1000 + n}},
    }
)
"""What the rules of a route ask for -> the `when` of rule number n."""


def runtime_of(when: When, count: int) -> Runtime:
    """A route with so many rules, loaded as any configuration is."""
    rules = [{"name": f"rule-{n}", "when": when(n), "to": ("fast", "quality")[n % 2]} for n in range(count)]
    models = {name: {"upstream": "up", "model": f"id-{name}"} for name in ("fast", "quality", "fallback")}
    document = {
        "version": 1,
        "upstreams": {"up": {"base_url": "http://127.0.0.1:9/v1"}},
        "models": models,
        "routes": {"auto": {"rules": rules, "default": "fast", "fallback": ["quality", "fallback"]}},
    }
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        file = Path(folder) / "routing.yaml"
        file.write_text(json.dumps(document))
        return load(file, {})


def _call(runtime: Runtime, size: int, messages: int) -> Call:
    return call_of(runtime, {}, Caller(), chat_body(size, "", messages=messages))


def cases() -> Cases:
    """Each kind of rules, in each number, for each prompt."""
    for kind, when in KINDS.items():
        for count in COUNTS:
            runtime = runtime_of(when, count)
            for label, prompt in PROMPTS.items():
                plan = partial(planner(runtime, Pins()).plan, _call(runtime, *prompt), remember=False)
                if plan().rule != "default":
                    raise AssertionError(f"a rule holds: {plan().rule}")
                yield f"{kind}; {count} rules; {label}", plan
    runtime = runtime_of(KINDS["keywords"], max(COUNTS))
    for label, prompt in PROMPTS.items():
        ready = planner(runtime, Pins())
        call = _call(runtime, *prompt)
        ready.plan(call)
        yield f"later turn; {max(COUNTS)} rules; {label}", partial(ready.plan, call)
