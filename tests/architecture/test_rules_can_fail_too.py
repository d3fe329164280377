"""The rules that look at more than one Python file, shown what breaks them and what does not."""

from __future__ import annotations

import pytest

from tests.architecture import test_import_direction as direction
from tests.architecture import test_mirror as mirror
from tests.architecture import test_size as size
from tests.architecture import test_tracked_files as files
from tests.architecture.tree import Source


def test_a_part_needs_its_row() -> None:
    assert direction.wrong_direction(Source("gateway/unheard_of/a.py", ""))


def test_serving_stands_alone() -> None:
    assert direction.wrong_direction(Source("serving/engine/a.py", "import gateway.upstream.pool"))
    assert direction.wrong_direction(Source("serving/engine/a.py", "import gateway.clock")) == []


def test_the_bars_of_function_length() -> None:
    assert len(size.over_the_bars([10] * 20 + [60] * 10)) == 2
    assert size.over_the_bars([9] * 29 + [80]) == size.over_the_bars([79] * 29) == []


def test_the_mirror_looks_both_ways() -> None:
    source = Source("gateway/config/load.py", "x\n" * 31)
    assert mirror.untested([source], set()) == ["gateway/config/load.py: no tests/unit/config/test_load.py"]
    assert mirror.untested([source], {"tests/unit/config/test_load.py"}) == []
    assert mirror.orphans([source], {"tests/unit/config/test_lord.py"}) == ["tests/unit/config/test_lord.py"]
    assert mirror.orphans([source], {"tests/unit/config/test_load.py", "tests/unit/conftest.py"}) == []


@pytest.mark.parametrize("text", ["index = 'https://pypi.o" + "rg/simple'", "cp /ro" + "ot/x y", "cd /wo" + "rk/main"])
def test_foreign_places_are_found(text: str) -> None:
    assert files.foreign("a.md", text.encode())
    assert files.foreign("a.md", b"docs at example.org, code in /usr/lib") == []


def test_missing_files_are_found() -> None:
    assert files.missing_files("`gateway/nowhere.py`, then `gateway/errors.py` and tests/") == ["gateway/nowhere.py"]


def test_faulty_scripts_are_found() -> None:
    sound = "#!/usr/bin/env bash\nset -euo pipefail\ntrue\n"
    assert files.faults("a", sound, True) == []
    assert files.faults("a", sound, False)
    assert files.faults("a", sound + "if\n", True)
    assert files.faults("a", sound.replace("set", "# set"), True)
    assert files.faults("a", "echo", True)
