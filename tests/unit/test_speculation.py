"""What kind of answer a call has had."""

from __future__ import annotations

import pytest

from gateway.speculation import Governed
from tests.fakes import to_json
from tests.unit.building import a_call


@pytest.mark.parametrize(
    ("fields", "governed", "kind"),
    [
        ({}, None, "text"),
        ({"tools": [{}]}, Governed(), "text"),
        ({"tools": [{}]}, Governed(tool=True), "tool"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, None, "json"),
        ({"response_format": {"type": "json_object"}, "tools": [{}]}, Governed(tool=True), "tool"),
        ({"response_format": {"type": "text"}}, None, "text"),
        ({"response_format": 5}, None, "text"),
    ],
)
def test_the_kind_of_an_answer(fields: dict[str, object], governed: Governed | None, kind: str) -> None:
    call = a_call(to_json({"model": "m", "messages": [], **fields}))
    call.governed = governed
    assert call.kind == kind
