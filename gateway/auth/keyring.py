"""Who a caller is: by a key of the configuration file, or by one that was created."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping

from gateway.auth.created import Created, NoKeys
from gateway.auth.secret import is_created, is_damaged
from gateway.call import Caller
from gateway.config.runtime import Runtime
from gateway.errors import GatewayError

_ANYONE = Caller()


class Keyring:
    """Finds the caller behind a credential.

    Keys are held and looked up by their hash under a random secret of this process: neither the look-up's time nor the
    process's memory tells a key.
    """

    def __init__(self, runtime: Runtime, created: Created | None = None) -> None:
        self._secret = os.urandom(32)
        self._open = runtime.open_to_all
        self._created = NoKeys() if created is None else created
        self._callers = {
            self._digest(k.key.encode()): Caller(
                k.name, k.team, None if k.models is None else frozenset(k.models), k.limits, k.budget
            )
            for k in runtime.keys
        }

    def identify(self, headers: Mapping[bytes, bytes]) -> Caller:
        """The caller by `Authorization: Bearer` (in any case) or `x-api-key`. Raises GatewayError invalid_api_key.

        Where everybody is let in, a created key still tells who comes, and one that has ended is still refused."""
        if self._open:
            sent = _sent(headers)
            return (self._created.find(sent) if sent else None) or _ANYONE
        credential = _credential(headers)
        caller = self._callers.get(self._digest(credential)) or self._created.find(credential)
        if caller is None:
            raise self._unknown(credential)
        return caller

    def _unknown(self, credential: bytes) -> GatewayError:
        if not is_created(credential):
            return GatewayError("invalid_api_key", "This gateway does not know the API key that was sent.")
        if is_damaged(credential):
            text = "The API key that was sent is damaged: something of it is missing or changed. Copy it once more."
            return GatewayError("invalid_api_key", text)
        if not self._created.known:
            text = "Created keys cannot be checked yet: the gateway's database has not answered since its start."
            return GatewayError("database_unavailable", text, retry_after=2)
        return GatewayError("invalid_api_key", "This gateway does not know the API key that was sent.")

    def _digest(self, credential: bytes) -> bytes:
        return hashlib.blake2b(credential, key=self._secret, digest_size=32).digest()


def _sent(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The credential; None: an `Authorization` of another form, b"": there is none."""
    value = headers.get(b"authorization")
    if value is None:
        return headers.get(b"x-api-key", b"").strip()
    scheme, _, credential = value.strip().partition(b" ")
    return credential.strip() or None if scheme.lower() == b"bearer" else None


def _credential(headers: Mapping[bytes, bytes]) -> bytes:
    sent = _sent(headers)
    if sent is None:
        raise GatewayError("invalid_api_key", "The Authorization header must read 'Bearer <key>'.")
    if not sent:
        raise GatewayError(
            "invalid_api_key", "No API key was sent. Send 'Authorization: Bearer <key>' or 'x-api-key: <key>'."
        )
    return sent


def is_admin(runtime: Runtime, headers: Mapping[bytes, bytes]) -> bool:
    """The credential is the admin key."""
    admin, sent = runtime.gateway.admin_key, _sent(headers)
    return bool(admin and sent) and hmac.compare_digest(sent or b"", (admin or "").encode())
