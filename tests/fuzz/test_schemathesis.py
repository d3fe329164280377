"""Requests made from the application's own OpenAPI document: none is answered by a fault, and the document is true."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway.call import ENDPOINTS
from tests.fakes import Upstream, error
from tests.fakes.echo import echo
from tests.fakes.upstream import Exchange
from tests.harness import Gateway, config_for

pytestmark = pytest.mark.slow

EXAMPLES = 12
"""Requests of each kind (as described, not as described) to each path."""
KEYS: dict[str, Any] = {"keys": [{"name": "ci", "key": "sk-gateway-key"}]}
GOOD = (("authorization", "Bearer sk-gateway-key"), ("x-api-key", "sk-gateway-key"))
BAD = (("authorization", "Basic eDp5"), ("x-api-key", "sk-wrong"))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


async def strict(exchange: Exchange) -> None:
    """An upstream that refuses what it cannot read, as real ones do."""
    asked = exchange.request.json() if exchange.request.body else {}
    try:
        empty = asked.get("input") == []
        await (error(400, "Send some input.") if empty else echo)(exchange)
    except (AttributeError, TypeError, ValueError):
        await error(400, "I do not understand.")(exchange)


@pytest.mark.parametrize("sections", [{}, KEYS], ids=["open", "keys"])
async def test_no_request_is_answered_by_a_fault(sections: dict[str, Any]) -> None:
    async with Upstream(default=strict) as upstream, Gateway(config_for(upstream, **sections)) as gateway:
        sent = await asyncio.to_thread(_ask_everything, gateway.url, bool(sections))
        inference = {(f"POST /v1{endpoint.path}", mode) for endpoint in ENDPOINTS.values() for mode in GenerationMode}
        assert inference < set(sent)
        assert upstream.count() > 0


def _ask_everything(url: str, locked: bool) -> list[tuple[str, GenerationMode]]:
    """What was asked: operations, as described and not."""
    sent = []
    with requests.Session() as session:
        for result in schemathesis.openapi.from_url(f"{url}/openapi.json", headers=dict(GOOD)).get_all_operations():
            assert isinstance(result, Ok)
            operation = result.ok()
            for mode in GenerationMode:
                with suppress(Unsatisfiable):  # a page without parameters cannot be asked wrongly
                    _ask(operation, mode, session, locked)
                    sent.append((operation.label, mode))
    return sent


def _ask(operation: Any, mode: GenerationMode, session: requests.Session, locked: bool) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode), st.booleans(), st.sampled_from([*GOOD, *BAD]))
    def ask(case: Any, known: bool, credential: tuple[str, str]) -> None:
        if known and isinstance(case.body, dict) and "model" in case.body:
            case.body["model"] = "auto"  # a random name would never get past the planner
        answer = case.call(session=session, headers=dict([credential]))
        case.validate_response(answer, checks=CHECKS)
        assert answer.headers["x-request-id"]
        if not operation.path.startswith("/admin/"):  # which has rules of its own
            assert (answer.status_code == 401) is (locked and credential in BAD and operation.path.startswith("/v1/"))
        if answer.status_code >= 400:
            told = answer.json()["error"]
            assert isinstance(told["message"], str)
            assert told.keys() >= {"type", "param", "code"}

    ask()
