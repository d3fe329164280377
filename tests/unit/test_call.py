"""The call's deadline, and what stands for nothing."""

from __future__ import annotations

from gateway.call import ENDPOINTS, NoLease
from gateway.config.runtime import GatewaySettings, Timeouts
from tests.unit.building import a_call, a_runtime


def test_the_deadline_is_the_total_of_the_configuration_it_started_with() -> None:
    runtime = a_runtime(gateway=GatewaySettings(timeouts=Timeouts(total=7)))
    assert a_call(runtime=runtime, arrived=100.0).deadline == 107


def test_a_lease_on_nothing_settles() -> None:
    call = a_call()
    NoLease().settle(call)
    assert not call.closed


def test_each_endpoint_is_known_by_its_name() -> None:
    assert {name: endpoint.name for name, endpoint in ENDPOINTS.items()} == {name: name for name in ENDPOINTS}
    assert all(endpoint.path.startswith("/") for endpoint in ENDPOINTS.values())
