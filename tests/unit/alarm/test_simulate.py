"""The delays that the guide names: a sample of them, computed again."""

from __future__ import annotations

import pytest

from gateway.alarm.simulate import LIMIT, NEVER, SCENARIOS, delay, shown


@pytest.mark.seconds
@pytest.mark.parametrize(("number", "most"), [(0, 60), (1, 160), (4, 400), (5, 80), (6, 30), (7, 300), (8, 60)])
def test_a_change_is_found(number: int, most: int) -> None:
    for seed in range(3):
        assert 1 <= delay(SCENARIOS[number], seed) <= most, SCENARIOS[number].name


def test_a_row_tells_of_false_alarms_and_of_what_is_never_found() -> None:
    assert shown([5, 10, 2_000, -3]) == ("10", "10", "2,000", "67%", "1")
    assert shown([NEVER, 4]) == (f"{(NEVER + 4) / 2:,.0f}", "4", "never", "50%", "0")
    assert shown([0]) == ("-", "-", "-", "-", "1")
    assert LIMIT < NEVER
