"""Case C47: reload by signal and by a changed file; what is wrong changes nothing; nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from watchfiles import Change

from gateway.config import ConfigError, Runtime, load
from gateway.config.reload import Reloader, Reloads, concerns

Event = tuple[str, Runtime | ConfigError | None]
TEXT = """\
version: 1
upstreams:
  up: {base_url: "http://127.0.0.1:9999/v1", api_key: "${UP_KEY}"}
models:
  fast: {upstream: up, model: MODEL}
routes:
  auto: {default: fast}
"""


class Watched:
    """A file under a running reloader, and what the reloader said, in order."""

    def __init__(self, file: Path, load: Callable[..., Runtime] = load) -> None:
        self.file = file
        self.environ = {"UP_KEY": "k"}
        self.said: asyncio.Queue[Event] = asyncio.Queue()
        self.write("m")
        self.reloader = Reloader(
            file,
            load(file, self.environ).digest,
            apply=lambda runtime: self.said.put_nowait(("apply", runtime)),
            refuse=lambda error: self.said.put_nowait(("refuse", error)),
            same=lambda: self.said.put_nowait(("same", None)),
            environ=self.environ,
            load=load,
        )

    def write(self, model: str) -> None:
        self.file.write_text(TEXT.replace("MODEL", model))

    def hang_up(self) -> None:
        os.kill(os.getpid(), signal.SIGHUP)

    async def next(self) -> Event:
        return await asyncio.wait_for(self.said.get(), 30)

    async def until(self, kind: str) -> Runtime | ConfigError | None:
        """What the reloader says next of this kind: signal and watcher may both have seen a change."""
        while (event := await self.next())[0] != kind:
            pass
        return event[1]

    async def applied(self) -> str:
        """The model's id in the next configuration that is taken."""
        runtime = await self.until("apply")
        assert isinstance(runtime, Runtime)
        return runtime.models["fast"].ids[0]

    async def refused(self) -> str:
        return str(await self.until("refuse"))

    async def until_watching(self) -> None:
        """Touch the file until the watcher, which says nothing of its own, has noticed it once."""
        while self.said.empty():
            self.file.touch()
            with suppress(TimeoutError):
                self.said.put_nowait(await asyncio.wait_for(self.said.get(), 0.5))


async def test_what_changed_before_it_began_to_watch_is_taken(tmp_path: Path) -> None:
    """A gateway that starts has read the file, and hears of signals and changes a moment later only."""
    watched = Watched(tmp_path / "routing.yaml")
    watched.write("later")
    async with running(watched):
        assert await watched.applied() == "later"


async def test_a_file_that_has_not_changed_meanwhile_is_no_reload(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "routing.yaml")
    async with running(watched):
        await asyncio.sleep(0.5)
        assert watched.said.empty()


@asynccontextmanager
async def running(watched: Watched) -> AsyncIterator[Watched]:
    task = asyncio.get_running_loop().create_task(watched.reloader.run())
    try:
        yield watched
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    async with running(Watched(tmp_path / "routing.yaml")) as it:
        it.reloader.request()
        assert (await it.next())[0] == "same"
        yield it


async def test_a_signal_reloads_a_valid_file(watched):
    watched.write("n")
    watched.hang_up()
    assert await watched.applied() == "n"


async def test_a_signal_on_an_unchanged_file(watched):
    watched.hang_up()
    assert await watched.next() == ("same", None)


async def test_a_broken_file_is_refused_and_the_next_good_one_taken(watched):
    watched.file.write_text("version: 1\nmodels: [")
    watched.hang_up()
    assert ":2: not valid YAML" in await watched.refused()
    watched.file.write_text(TEXT.replace("upstream: up", "upstream: uup"))
    watched.hang_up()
    while 'did you mean "up"?' not in await watched.refused():
        pass
    watched.write("n")
    watched.hang_up()
    assert await watched.applied() == "n"


async def test_back_to_the_old_file_after_a_broken_one_is_the_same(watched):
    watched.file.write_text("broken")
    watched.hang_up()
    await watched.refused()
    watched.write("m")
    watched.hang_up()
    await watched.until("same")


async def test_a_variable_that_is_gone_is_refused(watched):
    del watched.environ["UP_KEY"]
    watched.hang_up()
    assert "upstreams.up.api_key: UP_KEY is not set" in await watched.refused()


@pytest.mark.seconds
async def test_a_removed_file_is_refused(watched):
    watched.file.unlink()
    watched.hang_up()
    assert "there is no such file" in await watched.refused()


@pytest.mark.seconds
async def test_twenty_reloads_leave_no_task_thread_or_descriptor(watched):
    def held() -> tuple[int, int]:
        return len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))

    await watched.until_watching()
    before, threads = held(), threading.active_count()
    for number in range(20):
        watched.write(f"m{number}")
        watched.hang_up()
        assert await watched.applied() == f"m{number}"
    assert held() == before
    assert threading.active_count() <= threads + 1


async def test_several_requests_at_once_are_one_reload(tmp_path):
    loads: list[Path] = []
    entered, release = threading.Event(), threading.Event()

    def slow(path: Path, environ: object = None) -> Runtime:
        loads.append(path)
        if len(loads) == 3:  # after the start's own, and the look whether the file has changed since
            entered.set()
            release.wait(30)
        return load(path, {"UP_KEY": "k"})

    async with running(Watched(tmp_path / "routing.yaml", slow)) as watched:
        watched.reloader.request()
        await asyncio.to_thread(entered.wait, 30)
        for _ in range(10):
            watched.reloader.request()  # the loop runs on while a file is loaded
        release.set()
        await watched.next()
        await watched.next()
        assert len(loads) == 4


async def test_a_fault_in_loading_is_refused_and_tells_no_details(tmp_path):
    faults = [False]

    def faulty(path: Path, environ: object = None) -> Runtime:
        if faults[0]:
            raise ZeroDivisionError("s3cr3t")
        return load(path, {"UP_KEY": "k"})

    async with running(Watched(tmp_path / "routing.yaml", faulty)) as watched:
        faults[0] = True
        watched.reloader.request()
        assert (await watched.refused()).endswith("routing.yaml: cannot be loaded: ZeroDivisionError")


async def test_a_changed_file_is_taken_without_a_signal(watched):
    await watched.until_watching()
    watched.write("n")
    assert await watched.applied() == "n"


async def test_a_file_replaced_by_rename_is_taken_again_and_again(watched):
    await watched.until_watching()
    for model in ("n", "o"):
        other = watched.file.with_name(f".routing.yaml.{model}")
        other.write_text(TEXT.replace("MODEL", model))
        other.replace(watched.file)
        assert await watched.applied() == model


async def test_a_changed_dotenv_is_taken(watched):
    del watched.environ["UP_KEY"]
    await watched.until_watching()
    watched.file.with_name(".env").write_text("UP_KEY=from-file\n")
    runtime = await watched.until("apply")
    assert isinstance(runtime, Runtime)
    assert runtime.upstreams["up"].api_key == "from-file"


async def test_a_file_behind_a_switched_link_is_taken(tmp_path):
    """As Kubernetes mounts a ConfigMap: routing.yaml -> ..data/routing.yaml, and ..data is replaced."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "routing.yaml").write_text(TEXT.replace("MODEL", name))
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "routing.yaml").symlink_to("..data/routing.yaml")
    async with running(Watched(tmp_path / "routing.yaml")) as watched:
        await watched.until_watching()
        (tmp_path / "..tmp").symlink_to("two")
        (tmp_path / "..tmp").replace(tmp_path / "..data")
        assert await watched.applied() == "two"


@pytest.mark.parametrize(
    ("name", "concerned"),
    [
        ("routing.yaml", True),
        (".env", True),
        ("..data", True),
        ("real.yaml", True),
        ("turnout.db", False),
        ("x", False),
    ],
)
def test_which_files_of_the_folder_matter(tmp_path, name, concerned):
    (tmp_path / "real.yaml").touch()
    (tmp_path / "routing.yaml").symlink_to("real.yaml")
    assert concerns(tmp_path / "routing.yaml")(Change.modified, str(tmp_path / name)) is concerned


async def test_a_folder_that_cannot_be_watched_leaves_the_signal(tmp_path):
    folder = tmp_path / "sub"
    folder.mkdir()
    watched = Watched(folder / "routing.yaml")
    watched.file.unlink()
    folder.rmdir()
    async with running(watched):
        assert "changes of the file are not seen" in await watched.refused()
        folder.mkdir()
        watched.write("n")
        watched.hang_up()
        assert await watched.applied() == "n"


async def test_the_signal_is_given_back_at_the_end(tmp_path):
    async with running(Watched(tmp_path / "routing.yaml")) as watched:
        watched.reloader.request()
        await watched.next()
        assert signal.getsignal(signal.SIGHUP) != signal.SIG_DFL
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL


# -- what became of them


async def test_whoever_asks_is_told() -> None:
    counted: list[str] = []
    reloads = Reloads(counted.append)
    loaded_at = reloads.loaded_at
    asked: list[str] = []
    for result, problems, refused in (("refused", "no", "no"), ("same", "", None), ("ok", "", None)):
        reloads.request = partial(asked.append, result)
        waiting = asyncio.gather(reloads.ask(), reloads.ask())
        await asyncio.sleep(0)
        reloads.ended(result, problems)
        assert list(await waiting) == [(result, problems)] * 2
        assert reloads.refused == refused
        assert (reloads.loaded_at > loaded_at) == (result == "ok")
    assert (counted, asked) == (["refused", "same", "ok"], ["refused"] * 2 + ["same"] * 2 + ["ok"] * 2)


async def test_nobody_answers() -> None:
    reloads = Reloads()
    with pytest.raises(TimeoutError):
        await reloads.ask(0.01)
    reloads.ended("ok")
