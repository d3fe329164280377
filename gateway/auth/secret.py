"""The secret of a created key: `sk-turnout-`, 8 hex digits that lists show, 40 that nobody sees again, 6 of a checksum.

The checksum tells a key that was cut or mistyped from one that is not known; it makes no key harder to guess.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from zlib import crc32

PREFIX = "sk-turnout-"
SHOWN = 8
_FORM = re.compile(rb"sk-turnout-([0-9a-f]{48})([0-9a-f]{6})")
_MARK = PREFIX.encode()


def new_secret() -> str:
    """A secret that nobody has seen: 160 random bits beside those that are shown."""
    digits = secrets.token_hex(24)
    return f"{PREFIX}{digits}{_checksum(digits.encode())}"


def prefix_of(secret: str) -> str:
    """The part that lists show."""
    return secret[: len(PREFIX) + SHOWN]


def is_created(credential: bytes) -> bool:
    """It means to be the secret of a created key."""
    return credential.startswith(_MARK)


def is_damaged(credential: bytes) -> bool:
    """It was made by nobody: something of it is missing, added or changed."""
    match = _FORM.fullmatch(credential)
    return match is None or _checksum(match[1]).encode() != match[2]


def digest(pepper: bytes, credential: bytes) -> bytes:
    """What is kept and looked up instead of the secret: 32 bytes."""
    return hashlib.blake2b(credential, key=pepper, digest_size=32).digest()


def _checksum(digits: bytes) -> str:
    return f"{crc32(digits) & 0xFFFFFF:06x}"
