"""Created keys for the admin API: plain values in and out, refusals as the caller is told them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

from gateway.auth.asked import new_key
from gateway.auth.created import CreatedKeys
from gateway.auth.record import KeyRecord, KeyRefused
from gateway.auth.store import now_ms
from gateway.config.runtime import Runtime
from gateway.database import DatabaseDown
from gateway.errors import GatewayError

_STATUS = MappingProxyType({"wrong": 400, "taken": 409, "dead": 409, "full": 409})


class KeyAdmin:
    """Changes count in this process before they are answered. Every method raises GatewayError."""

    def __init__(self, created: CreatedKeys, runtime: Callable[[], Runtime]) -> None:
        """`runtime`: the configuration in force."""
        self._created, self._store, self._runtime = created, created.store, runtime

    async def list(self, ended: bool) -> list[dict[str, Any]]:
        """The keys by name; with `ended` also those that were revoked or have expired."""
        with _told():
            documents = [_document(key) for key in await self._store.all()]
        return [document for document in documents if ended or document["state"] == "live"]

    async def get(self, name: str) -> dict[str, Any]:
        """One key."""
        with _told():
            return _document(await self._store.get(name))

    async def create(self, values: Any, actor: str) -> dict[str, Any]:
        """A new key with the fields of `asked.NewKey`; its secret is the answer's `key`."""
        with _told():
            key, secret = await self._store.create(new_key(values, self._runtime(), now_ms()), actor)
        return await self._done(key, secret)

    async def rotate(self, name: str, overlap_seconds: int, actor: str) -> dict[str, Any]:
        """A new secret for a key; the old one lasts a while longer."""
        with _told():
            key, secret = await self._store.rotate(name, overlap_seconds * 1000, actor)
        return await self._done(key, secret)

    async def revoke(self, name: str, actor: str) -> dict[str, Any]:
        """The key opens nothing any more."""
        with _told():
            key = await self._store.revoke(name, actor)
        return await self._done(key)

    async def _done(self, key: KeyRecord, secret: str | None = None) -> dict[str, Any]:
        with suppress(DatabaseDown):  # it is done; this process sees it a little later
            await self._created.refresh()
        return _document(key) | ({"key": secret} if secret else {})


def _document(key: KeyRecord) -> dict[str, Any]:
    return key.document(now_ms())


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except KeyRefused as refusal:
        field, status = refusal.field or None, _STATUS.get(refusal.reason)
        if status is None:
            raise GatewayError("unknown_path", f"{refusal}.", param=field) from None
        raise GatewayError("invalid_request", f"{refusal}.", param=field, status=status) from None
    except DatabaseDown:
        text = "The gateway's database does not answer: keys cannot be changed or listed now; those that exist work."
        raise GatewayError("database_unavailable", text, retry_after=5) from None
