"""The scripted upstream over real sockets: bytes, boundaries, ends, records."""

from __future__ import annotations

import asyncio
import gzip
import ssl

import pytest

from tests.fakes import (
    DONE,
    Authority,
    Close,
    Cut,
    Exchange,
    Hang,
    Pause,
    Reply,
    Reset,
    Send,
    Sse,
    StallRead,
    Upstream,
    WaitFor,
    answer,
    chunk,
    connect,
    error,
    fetch,
    post,
    refusing_port,
    request,
    sends,
    silent_port,
    split,
)

CHAT = "/v1/chat/completions"
HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello there"}]}


async def test_raw_steps_arrive_as_the_same_bytes_with_the_same_boundaries(upstream: Upstream) -> None:
    writes = [b"HTTP/1.1 200 OK\r", b"\n", b"content-length: 4\r\n\r\n", b"\xe4", b"\xbd", b"\xa0", b"!"]
    upstream.script(*map(Send, writes))
    async with connect(upstream.url) as client:
        await client.send(post(CHAT, HELLO))
        response = await client.response()
        assert await response.read() == "你!".encode()
    assert [piece.data for piece in client.received] == writes


async def test_a_thousand_one_byte_writes_are_a_thousand_reads(upstream: Upstream) -> None:
    wire = Sse(answer(*["word"] * 4)).wire()[:1000]
    upstream.script(*sends(wire, 1), Close())
    async with connect(upstream.url) as client:
        await client.send(post(CHAT, HELLO))
        await client.until_closed()
    assert [len(piece.data) for piece in client.received] == [1] * len(wire)


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_each_piece_of_a_reply_is_one_read_in_every_framing(upstream: Upstream, framing: str) -> None:
    events = [*answer("a", "b"), b": comment\r\n\r\n", DONE]
    upstream.script(Sse(events, framing=framing))  # type: ignore[arg-type]
    async with connect(upstream.url) as client:
        await client.send(post(CHAT, HELLO))
        response = await client.response()
        pieces = [piece.data async for piece in response.pieces()]
    assert pieces == events
    assert response.complete
    assert response.header("content-type") == "text/event-stream"


async def test_steps_between_the_pieces_of_a_stream(upstream: Upstream) -> None:
    go = asyncio.Event()
    upstream.script(Sse([chunk("a"), WaitFor(go), Pause(0.001), chunk("b"), Reset(), chunk("never")]))
    async with connect(upstream.url) as client:
        await client.send(post(CHAT, HELLO))
        pieces = (await client.response()).pieces()
        assert (await anext(pieces)).data == chunk("a")
        assert len(client.received) == 2
        go.set()
        assert (await anext(pieces)).data == chunk("b")
        with pytest.raises(Cut) as cut:
            await anext(pieces)
    assert cut.value.reset
    assert not upstream.calls[0].closed.is_set()


async def test_close_is_a_fin_and_cuts_a_body_that_has_a_length(upstream: Upstream) -> None:
    upstream.script(Reply([b"half", Close()], headers={"content-length": "8"}))
    async with connect(upstream.url) as client:
        await client.send(post(CHAT, HELLO))
        response = await client.response()
        with pytest.raises(Cut) as cut:
            await response.read()
    assert not cut.value.reset
    assert not response.complete
    assert not client.was_reset


async def test_the_request_is_recorded_exactly(upstream: Upstream) -> None:
    raw = (
        b"POST /v1/chat/completions?beta=true HTTP/1.1\r\nHost: x\r\nX-A:  1 \r\nx-a: 2\r\nContent-Length: 2\r\n\r\n{}"
    )
    async with connect(upstream.url) as client:
        await client.send(raw)
        await (await client.response()).read()
    call = await upstream.call()
    assert call.head + call.body == raw
    assert (call.method, call.target, call.path) == ("POST", f"{CHAT}?beta=true", CHAT)
    assert call.headers == [("Host", "x"), ("X-A", "1"), ("x-a", "2"), ("Content-Length", "2")]
    assert call.header("x-A") == "1"
    assert call.json() == {}


async def test_a_chunked_request_in_small_writes_is_put_together(upstream: Upstream) -> None:
    raw = request(
        "POST", CHAT, {"transfer-encoding": "chunked"}, b"5;x=y\r\nhello\r\n3\r\n\r\n!\r\n0\r\nTrailer: t\r\n\r\n"
    )
    async with connect(upstream.url) as client:
        for piece in split(raw, 3):
            await client.send(piece, separate=True)
        await client.response()
    assert (await upstream.call()).body == b"hello\r\n!"


async def test_requests_are_counted_in_order_on_kept_connections(upstream: Upstream) -> None:
    async with connect(upstream.url) as first, connect(upstream.url) as second:
        for number, client in enumerate([first, second, first]):
            await client.send(post(CHAT, {"n": number}))
            await (await client.response()).read()
        assert (upstream.connections.open, upstream.connections.total) == (2, 2)
    await upstream.until_open(0)
    assert [(call.number, call.connection, call.json()["n"]) for call in upstream.calls] == [
        (0, 0, 0),
        (1, 1, 1),
        (2, 0, 2),
    ]
    assert (upstream.count(), upstream.count("/completions"), upstream.count("/models", "GET")) == (3, 3, 0)
    assert (upstream.connections.open, upstream.connections.total, upstream.connections.peak) == (0, 2, 2)


async def test_two_requests_in_one_write_are_answered_one_after_the_other(upstream: Upstream) -> None:
    upstream.script(Reply(b"1"))
    upstream.script(Reply(b"2"))
    async with connect(upstream.url) as client:
        await client.send(post(CHAT, HELLO) * 2)
        bodies = [await (await client.response()).read() for _ in range(2)]
    assert bodies == [b"1", b"2"]


async def test_scripts_are_chosen_by_path_then_age_and_questions_do_not_use_them_up(upstream: Upstream) -> None:
    upstream.script(error(500), path="/embeddings", times=None)
    upstream.script(error(429), times=2)
    upstream.script(error(418))
    assert (await fetch(upstream.url, "/v1/models")).json()["data"][0]["id"] == "fake"
    statuses = [(await fetch(upstream.url, path, HELLO)).status for path in ["/v1/embeddings", CHAT, CHAT, CHAT, CHAT]]
    assert statuses == [500, 429, 429, 418, 200]
    assert [script.path for script in upstream.scripts] == ["/embeddings"]


@pytest.mark.parametrize("leave", ["close", "reset"])
async def test_a_peer_that_leaves_in_the_middle_is_noticed_and_ends_the_script(upstream: Upstream, leave: str) -> None:
    ended: list[str] = []

    async def script(exchange: Exchange) -> None:
        try:
            await Sse([chunk("a"), Hang(), chunk("b")])(exchange)
        finally:
            ended.append("script")

    upstream.script(script)
    async with connect(upstream.url) as client:
        await client.send(post(CHAT, HELLO))
        await anext((await client.response()).pieces())
        client.close() if leave == "close" else client.reset()
        call = await upstream.call()
        await call.closed.wait()
        await call.done.wait()
    assert ended == ["script"]
    assert call.reset == (leave == "reset")
    assert call.written == len(b"".join(piece.data for piece in client.received))


async def test_a_peer_that_leaves_after_the_answer_has_not_cut_it(upstream: Upstream) -> None:
    await fetch(upstream.url, CHAT, HELLO)
    await upstream.until_open(0)
    assert upstream.calls[0].done.is_set()
    assert not upstream.calls[0].closed.is_set()


async def test_a_peer_that_leaves_within_its_own_request_is_recorded(upstream: Upstream) -> None:
    async with connect(upstream.url) as client:
        await client.send(b"POST /v1/x HTTP/1.1\r\ncontent-length: 10\r\n\r\nhalf", separate=True)
        client.close()
        await upstream.until_open(0)
    call = upstream.calls[0]
    assert call.closed.is_set()
    assert not call.received.is_set()
    assert call.body == b"half"


async def test_written_counts_what_a_peer_that_does_not_read_lets_through() -> None:
    async with Upstream(send_buffer=8192) as up:
        up.script(Sse([b"x" * 4096] * 5000, framing="close", separate=False))
        async with connect(up.url, receive_buffer=8192) as client:
            client.stop_reading()
            await client.send(post(CHAT, HELLO))
            call = await up.call()
            before = -1
            while before != call.written:
                before = call.written
                await asyncio.sleep(0.05)
            assert 0 < call.written < 1_000_000
            client.resume_reading()
            assert len(await (await client.response()).read()) == 5000 * 4096
            assert call.written > 5000 * 4096


async def test_a_body_that_is_not_read_stays_with_the_sender() -> None:
    async with Upstream(receive_buffer=4096) as up:
        up.script(StallRead(), Reply(b"too much", 413, keep=False))
        async with connect(up.url) as client:
            sending = asyncio.ensure_future(client.send(post(CHAT, b"x" * 20_000_000)))
            assert (await client.response()).status == 413
            assert not sending.done()
            assert not up.calls[0].received.is_set()
            client.reset()
            await sending


async def test_an_unused_connection_is_closed_after_the_idle_time() -> None:
    async with Upstream(idle=0.02) as up, connect(up.url) as client:
        await client.send(post(CHAT, HELLO))
        assert (await (await client.response()).read()).startswith(b"{")
        await client.until_closed()
        assert up.connections.open == 0
        assert not client.was_reset


async def test_idle_connections_are_closed_on_demand_and_busy_ones_are_not(upstream: Upstream) -> None:
    go = asyncio.Event()
    upstream.script(WaitFor(go), Reply(b"ok"))
    async with connect(upstream.url) as busy, connect(upstream.url) as idle:
        await busy.send(post(CHAT, HELLO))
        await upstream.call()
        await upstream.until_open(2)
        assert upstream.close_idle(reset=True) == 1
        await idle.until_closed()
        assert idle.was_reset
        go.set()
        assert await (await busy.response()).read() == b"ok"


async def test_compressed_answers_can_be_read_event_by_event(upstream: Upstream) -> None:
    upstream.script(Sse([b"one\n\n", b"two\n\n"], gzip=True))
    upstream.script(Reply(b"whole", gzip=True))
    stream, whole = [await fetch(upstream.url, CHAT, HELLO) for _ in range(2)]
    assert (gzip.decompress(stream.body), gzip.decompress(whole.body)) == (b"one\n\ntwo\n\n", b"whole")
    assert whole.header("content-encoding") == "gzip"
    assert whole.header("content-length") == str(len(whole.body))


async def test_tls_with_a_certificate_that_only_its_own_authority_trusts() -> None:
    authority = Authority()
    async with Upstream(tls=authority.server()) as up:
        up.script(Sse([chunk("a"), Reset()]))
        assert up.url.startswith("https://127.0.0.1:")
        async with connect(up.url, tls=authority.client()) as client:
            await client.send(post(CHAT, HELLO))
            response = await client.response()
            assert (await anext(response.pieces())).data == chunk("a")
            await client.gone()
            assert client.was_reset
        with pytest.raises(ssl.SSLCertVerificationError):
            await fetch(up.url, "/v1/models", tls=Authority().client())


async def test_a_script_that_fails_fails_the_test() -> None:
    async def wrong(exchange: Exchange) -> None:
        raise LookupError("the script is wrong")

    up = Upstream()
    await up.__aenter__()
    up.script(wrong)
    with pytest.raises(Cut):
        await fetch(up.url, CHAT, HELLO)
    with pytest.raises(LookupError, match="the script is wrong"):
        await up.__aexit__(None, None, None)


async def test_what_is_not_http_fails_the_test() -> None:
    up = Upstream()
    await up.__aenter__()
    async with connect(up.url) as client:
        await client.send(b"nonsense\r\n\r\n")
        await client.until_closed()
    with pytest.raises(ValueError, match="unpack"):
        await up.__aexit__(None, None, None)


async def test_stopping_cuts_what_runs_and_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    async with Upstream() as up, connect(up.url) as client:
        up.script(Hang())
        await client.send(post(CHAT, HELLO))
        await up.call()
        await up.stop()
        await client.until_closed()
        with pytest.raises(ConnectionRefusedError):
            await fetch(up.url, "/v1/models")
        async with Upstream(port=up.port) as again:
            assert (await fetch(again.url, "/v1/models")).status == 200
    assert asyncio.all_tasks() == before


async def test_a_refusing_and_a_silent_port() -> None:
    with refusing_port() as port, pytest.raises(ConnectionRefusedError):
        await fetch(f"http://127.0.0.1:{port}", "/")
    with silent_port() as port, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1), connect(f"http://127.0.0.1:{port}"):
            pass
