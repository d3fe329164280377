"""Settings that make no sense are refused."""

from __future__ import annotations

import pytest

from gateway.alarm.observation import Settings


@pytest.mark.parametrize("drift", [0.0, -0.1, 1.1])
def test_a_drift_that_makes_no_sense(drift: float) -> None:
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        Settings(drift)
