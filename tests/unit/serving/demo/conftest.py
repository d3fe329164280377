"""One thread for torch: on a busy machine two of them mostly wait for each other."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> None:
    try:
        import torch
    except ModuleNotFoundError:
        return
    torch.set_num_threads(1)
