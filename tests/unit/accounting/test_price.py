"""What calls cost, by hand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from gateway.accounting.price import cost
from gateway.call import Usage
from gateway.config.runtime import Engine, Price, PricePlan
from tests.unit.building import a_model

USAGE = Usage(prompt=1_000_000, cached=400_000, completion=200_000, reasoning=50_000)
SONNET = Price(input=Decimal("3"), cached=Decimal("0.3"), output=Decimal("15"))


@pytest.mark.parametrize(
    ("price", "usd"),
    [
        (None, "0"),
        (SONNET, "4.92"),  # 0.6 M at 3, 0.4 M at 0.3, 0.2 M at 15; reasoning is part of the completion
        (replace(SONNET, cached=None), "6"),
        (replace(SONNET, cached=Decimal(0)), "4.8"),
        (Price(input=Decimal("0.02"), output=Decimal(0)), "0.02"),
        (Price(plan=PricePlan(Decimal(50), "month", 300_000_000)), "0.2"),
    ],
)
def test_by_token(price: Price | None, usd: str) -> None:
    assert cost(a_model(price=price), USAGE) == Decimal(usd)


def test_by_gpu_second() -> None:
    model = a_model(price=Price(gpu_second=Decimal("0.0008")))
    assert cost(model, USAGE, seconds=2.5) == Decimal("0.002")
    assert cost(model, USAGE, seconds=2.5, beside=4) == Decimal("0.0005")
    engine = Engine(Path("checkpoint"), 8100, tensor_parallel=8)
    on_eight = replace(model, upstream=replace(model.upstream, engine=engine))
    assert cost(on_eight, USAGE, seconds=2.5) == Decimal("0.016")


def test_an_upstream_that_says_more_was_cached_than_was_sent() -> None:
    assert cost(a_model(price=SONNET), Usage(prompt=10, cached=1_000_000)) == Decimal("0.3")
