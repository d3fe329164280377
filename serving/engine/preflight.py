"""What can be seen to be wrong before vLLM spends ten seconds on finding out, or never finds out."""

from __future__ import annotations

import socket
from pathlib import Path

from serving.checkpoint.header import LFS_POINTER, open_regular

WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
CONFIGS = ("config.json", "params.json")


def port_problem(port: int) -> str | None:
    """Why 127.0.0.1:`port` cannot be served.

    vLLM opens its port for sharing, so a second engine starts beside a forgotten first one, the two split the requests,
    and readiness may be told by the wrong one. Binding without sharing shows that the port is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError as error:
            return f"port {port} cannot be used ({error.strerror}); end the program that holds it or change engine.port"
    return None


def free_port() -> int:
    """A port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def checkpoint_problem(checkpoint: Path) -> str | None:
    """Why a checkpoint folder cannot be served."""
    if not checkpoint.is_dir():
        return f"the checkpoint folder {checkpoint} does not exist"
    if not any((checkpoint / name).is_file() for name in CONFIGS):
        return f"the checkpoint folder {checkpoint} has no config.json"
    weights = [file for pattern in WEIGHTS for file in checkpoint.glob(pattern)]
    if not weights:
        return f"the checkpoint folder {checkpoint} has no weights ({', '.join(WEIGHTS)})"
    return next(filter(None, map(_file_problem, weights)), None)


def _file_problem(file: Path) -> str | None:
    """Why a file of weights cannot be read: a link that leads nowhere, a pipe, a pointer instead of the file."""
    try:
        with open_regular(file) as opened:
            start = opened.read(len(LFS_POINTER))
    except OSError as error:
        if file.is_symlink() and not file.exists():
            return f"{file} is a link to {file.readlink()}, which is not there; put that file back or copy it here"
        return f"{file} cannot be read ({error.strerror}); put the file there or remove it"
    if start == LFS_POINTER:
        return f"{file} is only a Git LFS pointer; run `git lfs pull` in the checkpoint's repository"
    return None
