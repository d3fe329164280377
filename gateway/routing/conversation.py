"""Which conversation a call belongs to."""

from __future__ import annotations

import hashlib

from gateway.routing.facts import Facts, role_of

_SESSION_HEADER = b"x-session-id"
_AGENT_HEADERS = (b"x-claude-code-session-id", b"session_id", b"x-conversation-id")
"""What coding agents send by themselves; asked after the body, which the application wrote."""
_BODY_FIELDS = ("session_id", "conversation_id")
_MAX_TEXT = 4096


def conversation_of(facts: Facts, secret: bytes) -> bytes:
    """A 16-byte name of the call's conversation: the session that the client names, else a keyed hash of the caller and
    the first user message. Two callers never share one."""
    caller = facts.call.caller.key.encode()
    named = _named(facts)
    text = named if named is not None else _first_user(facts)
    digest = hashlib.blake2b(text, key=secret, digest_size=16, person=b"named" if named is not None else b"text")
    digest.update(b"\x1f" + caller)
    return digest.digest()


def _named(facts: Facts) -> bytes | None:
    headers = facts.call.headers
    session = headers.get(_SESSION_HEADER)
    if session:
        return session[:_MAX_TEXT]
    metadata = facts.metadata
    for field in _BODY_FIELDS if metadata else ():
        value = metadata.get(field)
        if isinstance(value, str) and value:
            return value.encode()[:_MAX_TEXT]
    cache_key = facts.call.body.field("prompt_cache_key")
    if cache_key is not None and cache_key.startswith(b'"') and len(cache_key) > 2:
        return cache_key[:_MAX_TEXT]
    for name in _AGENT_HEADERS:
        session = headers.get(name)
        if session:
            return session[:_MAX_TEXT]
    return None


def _first_user(facts: Facts) -> bytes:
    """The first user message as it was sent, by its beginning and its length: what stays while a conversation grows."""
    for message in facts.messages:
        if role_of(message) == "user":
            view = memoryview(message)
            return bytes(view[:_MAX_TEXT]) + b"%d" % view.nbytes
    return facts.prompt[:_MAX_TEXT]
