"""The raw client: what it sends, and what it makes of answers that end in every possible way."""

from __future__ import annotations

import pytest

from tests.fakes import Close, Cut, Hang, Reply, Reset, Send, Upstream, connect, fetch, post, request

PATH = "/v1/chat/completions"


def test_requests_have_exact_bytes() -> None:
    assert request("GET", "/x") == b"GET /x HTTP/1.1\r\nhost: test\r\n\r\n"
    assert post("/x", {"a": "你"}, {"Host": "h"}) == (
        b"POST /x HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 11\r\nHost: h\r\n\r\n"
        + '{"a":"你"}'.encode()
    )
    assert b"content-length: 5\r\n" in post("/x", b"{bad}")
    assert b"content-length" not in post("/x", b"", {"Transfer-Encoding": "chunked"})


async def test_a_cut_before_the_head(upstream: Upstream) -> None:
    upstream.script(Send(b"HTTP/1.1 200 OK\r\n"), Close())
    with pytest.raises(Cut, match="ended before the head") as cut:
        await fetch(upstream.url, PATH, {})
    assert not cut.value.reset


async def test_a_reset_instead_of_an_answer(upstream: Upstream) -> None:
    upstream.script(Reset())
    with pytest.raises(Cut, match="was reset before the head") as cut:
        await fetch(upstream.url, PATH, {})
    assert cut.value.reset


@pytest.mark.parametrize("cut", [b"5\r\nhello\r\n", b"5\r\nhel", b"5\r\nhello\r\n0\r\n"])
async def test_a_chunked_body_without_its_end_is_cut(upstream: Upstream, cut: bytes) -> None:
    upstream.script(Send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + cut), Close())
    with pytest.raises(Cut, match="within the body"):
        await fetch(upstream.url, PATH, {})


async def test_a_body_without_framing_ends_with_the_connection_but_not_by_reset(upstream: Upstream) -> None:
    upstream.script(Reply(b"whole", framing="close"))
    upstream.script(Reply([b"half", Reset()], framing="close"))
    response = await fetch(upstream.url, PATH, {})
    assert (response.body, response.complete) == (b"whole", True)
    with pytest.raises(Cut):
        await fetch(upstream.url, PATH, {})


async def test_interim_answers_are_skipped_unless_wanted(upstream: Upstream) -> None:
    for _ in range(2):
        upstream.script(Send(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"), Reply(b"{}", 201))
    async with connect(upstream.url) as client:
        await client.send(post(PATH, {}))
        assert await (first := await client.response()).read() == b"{}"
        assert (first.status, first.reason) == (201, "Created")
        await client.send(post(PATH, {}))
        assert [(await client.response(interim=True)).status for _ in range(2)] == [103, 201]


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_answers_that_have_no_body_whatever_they_say(upstream: Upstream, method: str, status: int) -> None:
    upstream.script(Reply(headers={"content-length": "9"}, status=status), path="/x")
    response = await fetch(upstream.url, "/x", method=method)
    assert (response.status, response.body, response.complete) == (status, b"", True)


async def test_pieces_carry_their_time_of_arrival(upstream: Upstream) -> None:
    upstream.script(Reply([b"a", b"b"], framing="chunked"))
    async with connect(upstream.url) as client:
        await client.send(post(PATH, {}))
        response = await client.response()
        pieces = [piece async for piece in response.pieces()]
    assert [piece.data for piece in pieces] == [b"a", b"b"]
    assert response.at <= pieces[0].at <= pieces[1].at


async def test_reading_can_stop_and_go_on(upstream: Upstream) -> None:
    upstream.script(Reply(b"x" * 100_000))
    async with connect(upstream.url, receive_buffer=4096) as client:
        client.stop_reading()
        await client.send(post(PATH, {}))
        await upstream.call()
        assert client.received == []
        client.resume_reading()
        assert len(await (await client.response()).read()) == 100_000


async def test_leaving_the_context_closes_the_connection(upstream: Upstream) -> None:
    upstream.script(Hang())
    async with connect(upstream.url) as client:
        await client.send(post(PATH, {}))
        call = await upstream.call()
    await call.closed.wait()
    await upstream.until_open(0)
