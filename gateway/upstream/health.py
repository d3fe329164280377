"""Whether an upstream could answer now: for engines of our own, asked; for others, what the configuration knows."""

from __future__ import annotations

import msgspec

from gateway import clock
from gateway.config.runtime import Model, Target
from gateway.errors import UpstreamFailure
from gateway.upstream.client import fetch

_FRESH_SECONDS = 2.0
_PROBE_SECONDS = 2.0


class Health:
    """Remembers each probe for two seconds. Probes are small GETs: a health check never costs a generation."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, str | None]] = {}

    async def why_not(self, model: Model) -> str | None:
        """Why a model cannot be used now; None: it can."""
        upstream = model.upstream
        if upstream.off is not None:
            return f"upstream '{upstream.name}' is off: {upstream.off}"
        if upstream.engine is None:
            return None
        asked, answer = self._known.get(model.name, (0.0, None))
        if clock.now() - asked > _FRESH_SECONDS:
            answers = [await _probe(target, upstream.api_key, model) for target in upstream.targets]
            answer = None if None in answers else answers[0]
            self._known[model.name] = (clock.now(), answer)
        return answer


async def _probe(target: Target, api_key: str | None, model: Model) -> str | None:
    """vLLM is up when `/health` says so and the model is listed."""
    try:
        status, _ = await fetch(target.url.removesuffix("/v1") + "/health", api_key, seconds=_PROBE_SECONDS)
        if status != 200:
            return f"its engine is not ready (health {status})"
        status, body = await fetch(f"{target.url}/models", api_key, seconds=_PROBE_SECONDS)
        listed = {row["id"] for row in msgspec.json.decode(body)["data"]} if status == 200 else set()
    except UpstreamFailure as failure:
        return f"its engine does not answer ({failure.detail})"
    except (msgspec.DecodeError, KeyError, TypeError):
        return "its engine's list of models cannot be read"
    return None if listed.intersection(model.ids) else "its engine does not list the model"
