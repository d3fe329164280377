"""The static keys of one configuration."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping

from gateway.call import Caller
from gateway.config.runtime import Runtime
from gateway.errors import GatewayError

_ANYONE = Caller()


class Keyring:
    """Finds the caller behind a credential.

    Keys are held and looked up by their hash under a random secret of this process: neither the look-up's time nor the
    process's memory tells a key.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._secret = os.urandom(32)
        self._open = runtime.open_to_all
        self._callers = {
            self._digest(k.key.encode()): Caller(
                k.name, k.team, None if k.models is None else frozenset(k.models), k.limits, k.budget
            )
            for k in runtime.keys
        }

    def identify(self, headers: Mapping[bytes, bytes]) -> Caller:
        """The caller by `Authorization: Bearer` (in any case) or `x-api-key`. Raises GatewayError invalid_api_key."""
        if self._open:
            return _ANYONE
        credential = _credential(headers)
        caller = self._callers.get(self._digest(credential))
        if caller is None:
            raise GatewayError("invalid_api_key", "This gateway does not know the API key that was sent.")
        return caller

    def _digest(self, credential: bytes) -> bytes:
        return hashlib.blake2b(credential, key=self._secret, digest_size=32).digest()


def _credential(headers: Mapping[bytes, bytes]) -> bytes:
    value = headers.get(b"authorization")
    if value is not None:
        scheme, _, credential = value.strip().partition(b" ")
        if scheme.lower() != b"bearer" or not credential.strip():
            raise GatewayError("invalid_api_key", "The Authorization header must read 'Bearer <key>'.")
        return credential.strip()
    credential = headers.get(b"x-api-key", b"").strip()
    if not credential:
        raise GatewayError(
            "invalid_api_key", "No API key was sent. Send 'Authorization: Bearer <key>' or 'x-api-key: <key>'."
        )
    return credential


def is_admin(runtime: Runtime, headers: Mapping[bytes, bytes]) -> bool:
    """The credential is the admin key."""
    admin = runtime.gateway.admin_key
    if not admin:
        return False
    try:
        return hmac.compare_digest(_credential(headers), admin.encode())
    except GatewayError:
        return False
