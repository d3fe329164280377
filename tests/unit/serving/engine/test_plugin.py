"""vLLM loads the plugin in each of its processes; it asks for the CPU's AMX registers where there are any."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from types import SimpleNamespace

import pytest

from serving.engine.plugin import register


@pytest.mark.parametrize("supported", [True, False])
def test_amx_is_asked_for_where_it_is(monkeypatch: pytest.MonkeyPatch, supported: bool) -> None:
    asked: list[bool] = []
    cpu = SimpleNamespace(_is_amx_tile_supported=lambda: supported, _init_amx=lambda: asked.append(True))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cpu=cpu))
    register()
    assert asked == [True] * supported


def test_vllm_finds_it() -> None:
    (found,) = (point for point in entry_points(group="vllm.general_plugins") if point.name == "turnout")
    assert found.load() is register
