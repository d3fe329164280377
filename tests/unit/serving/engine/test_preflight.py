from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.engine.preflight import checkpoint_problem, port_problem
from tests.unit.serving.engine.fakes import free_port


def test_a_free_port_is_no_problem() -> None:
    assert port_problem(free_port()) is None


@pytest.mark.parametrize("shared", [False, True])
def test_a_port_that_somebody_serves_is_one_even_if_they_would_share_it(shared: bool) -> None:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shared)
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        assert port_problem(port) == (
            f"port {port} cannot be used (Address already in use); end the program that holds it or change engine.port"
        )


def checkpoint(folder: Path, **files: bytes) -> Path:
    for name, data in files.items():
        (folder / name.replace("__", ".")).write_bytes(data)
    return folder


def test_a_checkpoint_that_can_be_served(tmp_path: Path) -> None:
    assert checkpoint_problem(checkpoint(tmp_path, config__json=b"{}", model__safetensors=b"\0" * 64)) is None


def test_C49_what_is_missing_in_a_checkpoint_is_said(tmp_path: Path) -> None:
    assert checkpoint_problem(tmp_path / "gone") == f"the checkpoint folder {tmp_path}/gone does not exist"
    assert checkpoint_problem(tmp_path) == f"the checkpoint folder {tmp_path} has no config.json"
    checkpoint(tmp_path, config__json=b"{}")
    assert checkpoint_problem(tmp_path) == (
        f"the checkpoint folder {tmp_path} has no weights (*.safetensors, *.bin, *.pt, *.gguf)"
    )


def test_weights_that_git_lfs_has_not_fetched(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    checkpoint(tmp_path, config__json=b"{}", a__safetensors=b"\0" * 64, b__safetensors=pointer)
    assert checkpoint_problem(tmp_path) == (
        f"{tmp_path}/b.safetensors is only a Git LFS pointer; run `git lfs pull` in the checkpoint's repository"
    )


def dangling(file: Path) -> None:
    file.symlink_to("../moved/model.safetensors")


def loop(file: Path) -> None:
    file.symlink_to(file.name)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (dangling, "is a link to ../moved/model.safetensors, which is not there"),
        (loop, "is a link to model.safetensors, which is not there"),
        (Path.mkdir, "cannot be read (not a regular file)"),
        (os.mkfifo, "cannot be read (not a regular file)"),
    ],
    ids=["a dangling link", "a link to itself", "a folder", "a pipe"],
)
def test_weights_that_cannot_be_read_are_said(make: Callable[[Path], object], reason: str, tmp_path: Path) -> None:
    """A pipe is not opened in earnest: that would wait for ever."""
    make(checkpoint(tmp_path, config__json=b"{}") / "model.safetensors")
    problem = checkpoint_problem(tmp_path)
    assert problem is not None
    assert problem.startswith(f"{tmp_path}/model.safetensors {reason}; ")
