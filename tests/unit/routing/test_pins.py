"""How long pins are kept, and how processes share them."""

from __future__ import annotations

from gateway.routing.pins import Pin, Pins

PIN = Pin("auto", "task", "quality", "refactor")
OTHER = Pin("auto", "talk", "fast")


class Shared:
    """A place for pins that notes what it is asked."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.asked: list[bytes] = []
        self.sent: list[tuple[bytes, int]] = []

    async def get(self, key: bytes) -> bytes | None:
        self.asked.append(key)
        return self.kept.get(key)

    def put(self, key: bytes, value: bytes, seconds: int) -> None:
        self.kept[key] = value
        self.sent.append((key, seconds))


def test_pins_expire_and_are_bounded() -> None:
    pins, pin = Pins(capacity=2, seconds=10), Pin("auto", "task", "quality")
    pins.put(b"a", pin, 0)
    assert pins.get(b"a", 10) == pin
    pins.put(b"a", pin, 10)
    assert pins.get(b"a", 20) == pin
    assert pins.get(b"a", 20.1) is None
    for key in (b"a", b"b", b"c"):
        pins.put(key, pin, 30)
    assert (len(pins), pins.get(b"a", 30), pins.get(b"c", 30)) == (2, None, pin)


async def test_another_processs_pin_is_asked_for_once() -> None:
    shared = Shared()
    here, there = Pins(remote=shared), Pins(remote=shared)
    there.put(b"a", PIN, 0)
    for moment in (1.0, 2.0):
        await here.recall(b"a", moment)
        assert here.get(b"a", moment) == PIN
    assert shared.asked == [b"a"]
    await here.recall(b"unknown", 3)
    assert here.get(b"unknown", 3) is None


async def test_a_pin_is_sent_when_it_changes_and_long_before_it_expires() -> None:
    shared = Shared()
    pins = Pins(seconds=3600, remote=shared)
    for moment in (1000, 1010, 1300):
        pins.put(b"a", PIN, moment)
    assert shared.sent == [(b"a", 3600)]
    pins.put(b"a", PIN, 1400)
    pins.put(b"a", OTHER, 1410)
    assert len(shared.sent) == 3


async def test_what_cannot_be_read_is_no_pin() -> None:
    shared = Shared()
    shared.kept[b"a"] = b"\xff not of this version"
    pins = Pins(remote=shared)
    await pins.recall(b"a", 0)
    assert pins.get(b"a", 0) is None


async def test_alone_nothing_is_asked() -> None:
    pins = Pins()
    assert not pins.shared
    await pins.recall(b"a", 0)
    pins.put(b"a", PIN, 0)
    assert pins.get(b"a", 0) == PIN
