"""Which replica gets a call: by load, by the beginning of the prompt, and never one that refuses."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from gateway.body import Body
from gateway.config.runtime import Target
from gateway.errors import CAUSES, UpstreamFailure
from gateway.upstream.breaker import AT_ONCE, Breaker, Group, Limits
from gateway.upstream.health import Load, Seen
from gateway.upstream.replicas import DEPTHS, Ask, Door, Replica, Replicas
from tests.unit.building import a_call

SHORT = a_call().body


def prompt(*texts: str) -> Body:
    messages = [{"role": "user", "content": text} for text in texts]
    return a_call(json.dumps({"model": "auto", "messages": messages}).encode()).body


def some_prompts(count: int) -> list[Body]:
    return [prompt(f"conversation {number} " * 200) for number in range(count)]


@dataclass
class Answered:
    """As much of `call.Answer` as a replica has to do with."""

    number: int
    ended: Any = None


class Client:
    """Has so many calls under way."""

    def __init__(self) -> None:
        self.busy = 0

    async def send(self, *_: Any) -> Any:
        raise NotImplementedError


class Rig:
    """Some replicas, `seen` by an engine's reports where a test puts them, on a clock of their own."""

    def __init__(self, count: int, **options: Any) -> None:
        self.now = 1000.0
        self.clients = [Client() for _ in range(count)]
        self.seen: dict[int, Seen] = {}
        targets = [Target("http", "host", 8100 + number, "/v1") for number in range(count)]
        self.doors = [Door(target, client, {}) for target, client in zip(targets, self.clients, strict=True)]
        breakers = [Breaker(Limits(2, 10.0), lambda: self.now, AT_ONCE) for _ in targets]
        self.group = Group(breakers)
        self.replicas = Replicas(self.doors, self.group, lambda target: self.seen.get(target.port - 8100), **options)
        self.asked: list[int] = []

    def order(self, body: Body = SHORT) -> list[int]:
        return [replica.door.target.port - 8100 for replica in self.replicas.order(body)]

    def home(self, body: Body) -> int:
        return self.order(body)[0]

    def busy(self, *calls: int) -> None:
        for client, count in zip(self.clients, calls, strict=True):
            client.busy = count

    def reports(
        self, number: int, *, running: float = 0, waiting: float = 0, kv: float = 0, why: str | None = None
    ) -> None:
        self.seen[number] = Seen(self.now, why, frozenset(), Load(running, waiting, kv))

    async def send(self, failures: dict[int, str] | None = None, body: Body = SHORT) -> int:
        """One call; `failures`: replica -> cause. The replica that answered, or -1."""

        async def ask(door: Door) -> Any:
            number = door.target.port - 8100
            self.asked.append(number)
            if number in (failures or {}):
                raise UpstreamFailure((failures or {})[number], f"it was {number}")
            return Answered(number)

        try:
            answer: Any = await self.replicas.send(body, ask)
        except UpstreamFailure:
            return -1
        assert answer.ended == self.group.breakers[answer.number].ended
        return int(answer.number)


# -- load


def test_the_less_loaded_of_two() -> None:
    rig = Rig(2)
    for loads, chosen in (((3, 1), 1), ((1, 3), 0)):
        rig.busy(*loads)
        assert {rig.order()[0] for _ in range(50)} == {chosen}


def test_equals_share_the_calls() -> None:
    rig = Rig(3)
    firsts = Counter(rig.order()[0] for _ in range(300))
    assert min(firsts[number] for number in range(3)) > 50


def test_the_most_loaded_of_three_is_never_chosen() -> None:
    rig = Rig(3)
    rig.busy(1, 9, 2)
    firsts = Counter(rig.order()[0] for _ in range(200))
    assert firsts[1] == 0
    assert firsts[0] > firsts[2] > 0


def test_every_replica_is_in_the_order_once() -> None:
    rig = Rig(4)
    rig.busy(4, 3, 2, 1)
    order = rig.order()
    assert sorted(order) == [0, 1, 2, 3]
    assert order[1:] == sorted(order[1:], reverse=True)


@pytest.mark.parametrize(
    "load", [{"running": 5}, {"waiting": 5}, {"running": 2, "waiting": 1, "kv": 0.5}], ids=["running", "waiting", "kv"]
)
def test_what_engines_report_counts(load: dict[str, Any]) -> None:
    """Others may send calls there as well; what our own connections know is newer."""
    rig = Rig(2)
    rig.busy(2, 4)
    rig.reports(1, running=1)
    assert rig.order()[0] == 0
    rig.reports(0, **load)
    assert rig.order()[0] == 1
    rig.busy(2, 9)
    assert rig.order()[0] == 0


# -- prefixes


def test_a_conversation_keeps_its_replica() -> None:
    rig = Rig(4)
    system = "You are a careful assistant. " * 200
    first = prompt(system, "hello")
    turns = [prompt(system, "hello", *["and then?"] * n) for n in range(10)]
    assert {rig.home(body) for body in turns} == {rig.home(first)}
    rig.busy(2, 2, 2, 2)
    assert rig.home(first) == rig.home(turns[9])


def test_a_growing_conversation_moves_twice_at_most() -> None:
    rig = Rig(8)
    homes = [rig.home(prompt(*["word " * 20] * n)) for n in range(4, 100)]
    assert sum(a != b for a, b in pairwise(homes)) <= len(DEPTHS) - 1


def test_conversations_spread() -> None:
    rig = Rig(4)
    homes = Counter(rig.home(body) for body in some_prompts(400))
    assert min(homes[number] for number in range(4)) > 50


def test_homes_are_the_same_in_every_process() -> None:
    assert [Rig(4).home(body) for body in some_prompts(8)] == [1, 2, 3, 1, 1, 3, 2, 2]


async def test_only_the_homeless_move_when_a_replica_goes() -> None:
    rig = Rig(4)
    bodies = some_prompts(100)
    before = [rig.home(body) for body in bodies]
    while rig.group.breakers[2].ready:
        await rig.send({2: "connect"})
    after = [rig.home(body) for body in bodies]
    assert all(b == a for b, a in zip(before, after, strict=True) if b != 2)
    assert {a for b, a in zip(before, after, strict=True) if b == 2} == {0, 1, 3}


def test_a_home_that_is_too_busy_is_left_for_the_next_in_line() -> None:
    rig = Rig(3)
    body = some_prompts(1)[0]
    home = rig.home(body)
    loads = [4, 4, 4]
    loads[home] = 10  # the mean is 6
    rig.busy(*loads)
    assert rig.home(body) == home
    loads[home] = 16  # the mean is 8
    rig.busy(*loads)
    second = rig.home(body)
    assert second != home
    assert {rig.home(body) for _ in range(20)} == {second}


@pytest.mark.parametrize("field", [b'"prompt":"%b"', b'"messages":["%b"]'])
def test_which_part_of_a_body_counts(field: bytes) -> None:
    rig = Rig(8)
    endpoint = "chat" if b"messages" in field else "completions"
    text = b"x" * 5000

    def home(before: bytes, value: bytes, after: bytes) -> int:
        raw = b'{"model":"auto",%b%b%b}' % (before, field % value, after)
        return rig.home(a_call(raw, endpoint=endpoint).body)

    assert home(b"", text, b"") == home(b'"user":"somebody",', text, b',"n":1') == home(b"", text + b"more", b"")
    assert len({home(b"", b"%d" % n + text, b"") for n in range(20)}) > 1


def test_short_prompts_and_embeddings_have_no_home() -> None:
    rig = Rig(2)
    embedding = a_call(b'{"model":"auto","input":"%b"}' % (b"x" * 5000), endpoint="embeddings").body
    for body in (prompt("hi"), embedding):
        assert {rig.home(body) for _ in range(50)} == {0, 1}


# -- the dead and the unready


async def test_a_replica_that_refuses_costs_nothing_and_is_left_alone() -> None:
    rig = Rig(2)
    for _ in range(20):
        assert await rig.send({0: "connect"}) == 1
    assert rig.asked.count(0) == 1
    rig.now += 10
    while rig.asked.count(0) == 1:
        assert await rig.send({0: "connect"}) == 1
    rig.now += 10
    while (await rig.send()) != 0:
        pass
    assert rig.group.breakers[0].ready


@pytest.mark.parametrize("cause", [cause for cause in CAUSES if cause != "connect"])
async def test_nothing_is_sent_twice(cause: str) -> None:
    rig = Rig(2)
    rig.busy(0, 1)
    assert await rig.send({0: cause, 1: cause}) == -1
    assert rig.asked == [0]


async def test_a_replica_that_keeps_failing_is_left_alone() -> None:
    rig = Rig(2)
    rig.busy(0, 1)
    for _ in range(2):
        assert await rig.send({0: "timeout"}) == -1
    assert await rig.send({0: "timeout"}) == 1


async def test_with_all_replicas_out_all_are_asked() -> None:
    rig = Rig(2)
    both = {0: "connect", 1: "connect"}
    assert await rig.send(both) == -1
    rig.asked.clear()
    assert await rig.send(both) == -1
    assert sorted(rig.asked) == [0, 1]
    assert await rig.send() in (0, 1)


async def test_an_engine_that_is_not_ready_comes_last() -> None:
    rig = Rig(2)
    rig.busy(0, 9)
    rig.reports(0, why="its engine is not ready (health 503)")
    assert rig.order() == [1, 0]
    assert await rig.send({1: "connect"}) == 0


async def test_one_replica_is_simply_asked() -> None:
    rig = Rig(1)
    for _ in range(3):
        assert await rig.send({0: "connect"}) == -1
    assert await rig.send() == 0


async def test_no_replica_at_all() -> None:
    with pytest.raises(UpstreamFailure, match="no address"):
        await Replicas([], Group([])).send(SHORT, pytest.fail)  # type: ignore[arg-type]


async def test_calls_that_leave_say_nothing_against_a_replica() -> None:
    rig = Rig(2)
    rig.busy(0, 9)

    async def hang(door: Door) -> Any:
        await asyncio.get_running_loop().create_future()

    ask: Ask = hang
    for _ in range(5):
        calling = asyncio.create_task(rig.replicas.send(SHORT, ask))
        await asyncio.sleep(0)
        calling.cancel()
        await asyncio.wait([calling])
    assert rig.order()[0] == 0


def test_down_are_all_or_none() -> None:
    wanted: list[int] = []
    rig = Rig(2, watch=lambda: wanted.append(1))
    assert rig.replicas.down is None
    rig.seen[0] = Seen(rig.now, "loading", down=True)
    assert rig.replicas.down is None
    rig.seen[1] = Seen(rig.now, "does not list the model")
    assert rig.replicas.down is None
    assert not wanted
    rig.seen[1] = Seen(rig.now, "refused", down=True)
    assert rig.replicas.down == "loading"
    assert wanted == [1]


def test_what_is_no_engine_is_never_down() -> None:
    rig = Rig(1)
    rig.seen[0] = Seen(rig.now, "loading", down=True)
    assert rig.replicas.down is None


async def test_each_call_is_told_to_whoever_watches() -> None:
    calls: list[int] = []
    rig = Rig(1, watch=lambda: calls.append(1))
    await rig.send()
    await rig.send({0: "cut"})
    assert len(calls) == 2


async def test_addresses_that_were_asked_are_not_asked_again_while_others_are_ready() -> None:
    rig = Rig(3)
    asked: set[Replica] = set()

    async def ask(door: Door) -> Any:
        raise UpstreamFailure("server_error", str(door.target.port))

    seen = []
    for number in range(4):
        assert rig.replicas.other(asked) is (number < 3)
        with pytest.raises(UpstreamFailure) as failure:
            await rig.replicas.send(SHORT, ask, asked)
        seen.append(failure.value.detail)
    assert len(set(seen[:3])) == 3
    assert not Rig(1).replicas.other(set())


async def test_a_call_that_moves_stays_away_from_who_failed_and_who_is_out() -> None:
    """Though the address it moves to refuses the connection."""
    rig = Rig(3)
    asked: set[Replica] = set()
    rig.reports(2, why="it loads")
    ports: list[int] = []

    async def ask(door: Door) -> Any:
        ports.append(door.target.port - 8100)
        raise UpstreamFailure("connect" if len(ports) > 1 else "server_error", "it was that one")

    for _ in range(2):
        with pytest.raises(UpstreamFailure):
            await rig.replicas.send(SHORT, ask, asked)
    assert sorted(ports) == [0, 1]
