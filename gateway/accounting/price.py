"""What calls cost. All money is computed here, as Decimal US dollars."""

from __future__ import annotations

from decimal import Decimal

from gateway.call import Usage
from gateway.config.runtime import Model, Price

MILLION = Decimal(1_000_000)
FREE = Decimal(0)


def cost(model: Model, usage: Usage, seconds: float = 0.0, beside: int = 1) -> Decimal:
    """USD for one answer of `model`.

    Per token: prompt, cached prompt and completion tokens at their prices. A plan: its price spread over its tokens.
    Per GPU second: `seconds` of all the engine's GPUs, shared with the calls `beside` it (itself among them); an
    estimate, since an engine has other work and idle time as well.
    """
    price = model.price
    if price is None:
        return FREE
    if price.plan is not None:
        return price.plan.usd * (usage.prompt + usage.completion) / price.plan.tokens
    if price.gpu_second is not None:
        gpus = model.upstream.engine.tensor_parallel if model.upstream.engine else 1
        return price.gpu_second * gpus * Decimal(round(seconds, 6)) / max(1, beside)
    return _by_token(price, usage)


def _by_token(price: Price, usage: Usage) -> Decimal:
    whole = price.input or FREE
    cached = whole if price.cached is None else price.cached
    fresh = max(0, usage.prompt - usage.cached)
    return (fresh * whole + usage.cached * cached + usage.completion * (price.output or FREE)) / MILLION
