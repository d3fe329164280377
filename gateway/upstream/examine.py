"""What is wrong with an upstream, found by its list of models: key, base URL, model ids, network, engine. Costs no
generation."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from gateway.config.network import is_loopback
from gateway.config.runtime import Model, Upstream
from gateway.errors import UpstreamFailure
from gateway.upstream import classify
from gateway.upstream.client import fetch
from gateway.upstream.health import Health

Step = Literal["key", "base URL", "model id", "network", "engine"]
STEPS: tuple[Step, ...] = ("key", "base URL", "model id", "network", "engine")
"""In the order in which a person should look."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One step's outcome."""

    upstream: str
    step: Step
    good: bool | None
    """None: not checked, since something before it is in the way."""
    text: str
    remedy: str = ""
    replica: str = ""
    """The address, where the upstream has several."""


async def examine(upstream: Upstream, models: Iterable[Model]) -> list[Finding]:
    """All findings on one upstream, in the order of `STEPS`; those of one step by replica."""
    models = list(models)
    if upstream.off is not None:
        remedy = "Set it in the environment or in the .env file beside the configuration."
        found = [Finding(upstream.name, "key", False, f"off: {upstream.off}", remedy)]
        return _ordered(found, upstream, models)
    alone = [replace(upstream, targets=(target,)) for target in upstream.targets]
    each = await asyncio.gather(*(_replica(one, [replace(m, upstream=one) for m in models]) for one in alone))
    if len(alone) == 1:
        return each[0]
    named = [replace(f, replica=one.targets[0].url) for one, found in zip(alone, each, strict=True) for f in found]
    return sorted(named, key=_order)


async def _replica(upstream: Upstream, models: list[Model]) -> list[Finding]:
    """The findings on an upstream of one address."""
    try:
        status, body = await fetch(f"{upstream.targets[0].url}/models", upstream.api_key, upstream.proxy)
    except UpstreamFailure as failure:
        return _ordered([_network(upstream, failure)], upstream, models)
    health = Health()
    found = [await _engine(health, upstream, model) for model in models] if upstream.engine else []
    found.append(Finding(upstream.name, "network", True, f"reached{_by(upstream)}"))
    if status == 200:
        found += _listed(upstream, models, body)
    else:
        found.append(_refused(upstream, status, body))
    return _ordered(found, upstream, models)


def _ordered(found: list[Finding], upstream: Upstream, models: list[Model]) -> list[Finding]:
    """The findings, and what is known without them of the steps that they do not tell of."""
    told = {finding.step for finding in found}
    unchecked = [
        Finding(upstream.name, step, None, f"{text}; not checked")
        for step, text in _configured(upstream, models)
        if step not in told
    ]
    return sorted(found + unchecked, key=_order)


def _configured(upstream: Upstream, models: list[Model]) -> Iterator[tuple[Step, str]]:
    yield "key", "one is configured" if upstream.api_key else "none is configured"
    for target in upstream.targets:
        yield "base URL", target.url
    for model in models:
        yield "model id", f"{model.name}: {' or '.join(model.ids)}"


def _order(finding: Finding) -> int:
    return STEPS.index(finding.step)


def _by(upstream: Upstream) -> str:
    return " through the proxy of the environment" if upstream.proxy else " directly"


def _network(upstream: Upstream, failure: UpstreamFailure) -> Finding:
    """'connection timeout' and 'local proxy failed', as clients put it."""
    if upstream.engine is not None:
        remedy = "Start it with `turnout up` or `turnout engine`; its log says why it does not come up."
        return Finding(upstream.name, "engine", False, f"does not answer: {failure.detail}", remedy)
    if upstream.proxy:
        variable = f"{upstream.targets[0].scheme.upper()}_PROXY"
        remedy = f"Is the proxy in {variable} up? `trust_env: false` goes round it; NO_PROXY excepts single hosts."
    elif is_loopback(upstream.targets[0].host):
        remedy = "Is the server on this machine running, and is the port right?"
    else:
        variable = f"{upstream.targets[0].scheme.upper()}_PROXY"
        remedy = f"Is the address right, and reachable from here? Behind a company network set {variable}."
    return Finding(upstream.name, "network", False, f"not reached{_by(upstream)}: {failure.detail}", remedy)


def _refused(upstream: Upstream, status: int, body: bytes) -> Finding:
    """401, an expired token, a wrong path."""
    failure = classify.refusal(status, {}, body)
    if failure.cause in ("auth", "quota") and "expired" in body.decode("utf-8", "replace").lower():
        return Finding(upstream.name, "key", False, "the token has expired", "Make a new key and put it in its place.")
    if failure.cause == "auth":
        remedy = (
            "Copy the key anew: whole, of this upstream, without spaces. Some keys are bound to models or addresses."
        )
        return Finding(upstream.name, "key", False, f"refused (HTTP {status})", remedy)
    if failure.cause == "quota":
        return Finding(upstream.name, "key", False, "the account has no credit left", "Top it up.")
    if status in (404, 405, 301, 302, 307, 308):
        remedy = f"The base URL must lead to an OpenAI-compatible API; {upstream.targets[0].url} was asked for /models."
        return Finding(upstream.name, "base URL", False, f"nothing there (HTTP {status})", remedy)
    remedy = "The upstream itself has trouble; try again, then ask its operator."
    return Finding(upstream.name, "base URL", False, f"answers {failure.detail}", remedy)


def _listed(upstream: Upstream, models: list[Model], body: bytes) -> list[Finding]:
    try:
        ids = {row["id"] for row in msgspec.json.decode(body)["data"] if isinstance(row["id"], str)}
    except (msgspec.DecodeError, KeyError, TypeError):
        remedy = "The base URL leads to a web page or another service: clients would say 'error reading choices'."
        return [Finding(upstream.name, "base URL", False, "answers 200, but no list of models", remedy)]
    key = "accepted" if upstream.api_key else "none is configured, none was asked for"
    found = [
        Finding(upstream.name, "key", True, key),
        Finding(upstream.name, "base URL", True, upstream.targets[0].url),
    ]
    return found + [_model(upstream, model, ids) for model in models]


def _model(upstream: Upstream, model: Model, ids: set[str]) -> Finding:
    known = next((i for i in model.ids if i in ids), None)
    if known is not None:
        return Finding(upstream.name, "model id", True, f"{model.name}: {known}")
    near = difflib.get_close_matches(model.ids[0], sorted(ids), n=3, cutoff=0.4)
    remedy = f"Nearest: {', '.join(near)}." if near else f"It lists {len(ids)} models, none of a similar name."
    return Finding(upstream.name, "model id", False, f"{model.name}: does not list {' or '.join(model.ids)}", remedy)


async def _engine(health: Health, upstream: Upstream, model: Model) -> Finding:
    why = await health.why_not(model)
    remedy = "" if why is None else "See its log; `turnout engine " + upstream.name + " --print` shows its command."
    return Finding(upstream.name, "engine", why is None, f"{model.name}: {why or 'ready'}", remedy)
