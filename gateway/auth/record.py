"""A created key as the database has it, without its secrets: these are kept as keyed hashes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from gateway.call import Caller
from gateway.config.runtime import Budget, Limit

State = Literal["live", "expired", "revoked"]


class KeyRefused(Exception):
    """A change that is not made; the text says why."""

    def __init__(
        self, reason: Literal["wrong", "taken", "missing", "dead", "full"], text: str, field: str = ""
    ) -> None:
        super().__init__(text)
        self.reason = reason
        """`wrong`: what is asked for makes no sense; else what is there already does not allow it."""
        self.field = field
        """The field at fault, if it is one."""


@dataclass(frozen=True, slots=True)
class Secret:
    """One secret of a key; after a rotation the old one lasts until `until_ms`."""

    digest: bytes = field(repr=False)
    prefix: str
    """What lists show, `sk-turnout-1a2b3c4d`."""
    created_ms: int
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """All that is known of a key. Times are milliseconds since 1970."""

    name: str
    team: str | None = None
    models: tuple[str, ...] | None = None
    """Routes and models it may use; None: all."""
    limits: Limit | None = None
    budget: Budget | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    created_ms: int = 0
    expires_ms: int | None = None
    revoked_ms: int | None = None
    secrets: tuple[Secret, ...] = ()
    """Newest first."""

    def state(self, now_ms: int) -> State:
        """What has become of it."""
        if self.revoked_ms is not None:
            return "revoked"
        return "expired" if self.expires_ms is not None and self.expires_ms <= now_ms else "live"

    def caller(self) -> Caller:
        """Who comes with it."""
        models = None if self.models is None else frozenset(self.models)
        return Caller(self.name, self.team, models, self.limits, self.budget, tuple(self.metadata.items()))

    def document(self, now_ms: int) -> dict[str, Any]:
        """For programs; times as ISO 8601 in UTC."""
        budget = self.budget and {"usd": float(self.budget.usd), "per": self.budget.per}
        return {
            "name": self.name,
            "state": self.state(now_ms),
            "team": self.team,
            "models": None if self.models is None else list(self.models),
            "limits": self.limits and asdict(self.limits),
            "budget": budget,
            "metadata": dict(self.metadata),
            "created": moment(self.created_ms),
            "expires": moment(self.expires_ms),
            "revoked": moment(self.revoked_ms),
            "secrets": [
                {"prefix": f"{s.prefix}...", "created": moment(s.created_ms), "until": moment(s.until_ms)}
                for s in self.secrets
            ],
        }


def moment(ms: int | None) -> str | None:
    """`2027-01-31T00:00:00Z`."""
    if ms is None:
        return None
    return datetime.fromtimestamp(ms // 1000, UTC).isoformat().replace("+00:00", "Z")


def plain(ms: int) -> str:
    """`2027-01-31 00:00 UTC`, for people."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d %H:%M} UTC"
