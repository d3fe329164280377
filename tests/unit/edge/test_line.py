"""Headers as the checks see them."""

from __future__ import annotations

import pytest

from gateway.edge.line import headers_of


@pytest.mark.parametrize(
    ("pairs", "headers"),
    [
        ([], {}),
        ([(b"a", b"1"), (b"b", b"2")], {b"a": b"1", b"b": b"2"}),
        ([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], {b"a": b"1, 3", b"b": b"2"}),
    ],
)
def test_a_repeated_header_is_never_half_seen(pairs: list[tuple[bytes, bytes]], headers: dict[bytes, bytes]) -> None:
    assert headers_of(pairs) == headers
