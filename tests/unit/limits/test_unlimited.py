"""The limit stage of a configuration without limits."""

from __future__ import annotations

from gateway.limits.unlimited import Unlimited
from tests.unit.building import a_call


async def test_every_call_is_admitted_and_may_settle() -> None:
    call = a_call()
    lease = await Unlimited().admit(call)
    lease.settle(call)
    assert call.status == 0
