"""`tests/unit` mirrors `gateway/` (as its root) and `serving/` (as `tests/unit/serving/`), in both directions."""

from __future__ import annotations

from collections.abc import Iterable

from tests.architecture.tree import Source, assert_none, sources

TRIVIAL = 30
"""Files of up to this many lines may go without a unit test."""

COVERED_ELSEWHERE: dict[str, str] = {
    "gateway/migrations/versions/v0001_ledger.py": "tests/unit/test_database.py runs every migration",
    "gateway/migrations/versions/v0002_keys.py": "tests/unit/test_database.py runs every migration",
    "gateway/migrations/versions/v0003_overrides.py": "tests/unit/test_database.py runs every migration",
    "gateway/edge/asgi.py": "tests/unit/edge/test_exchange.py sends every exchange through it",
}
"""Source -> which tests cover it, and why not a unit test."""


def mirror(source: str) -> str:
    """`gateway/config/load.py` -> `tests/unit/config/test_load.py`; a package is tested as `test_package.py`."""
    folder, _, name = source.removeprefix("gateway/").rpartition("/")
    stem = name.removesuffix(".py").replace("__init__", "package")
    return "/".join(filter(None, ["tests/unit", folder, f"test_{stem}.py"]))


def untested(files: Iterable[Source], tests: set[str]) -> list[str]:
    """Source files without their test file."""
    weighty = [s.path for s in files if s.lines > TRIVIAL and s.path not in COVERED_ELSEWHERE]
    return [f"{path}: no {mirror(path)}" for path in weighty if mirror(path) not in tests]


def orphans(files: Iterable[Source], tests: set[str]) -> list[str]:
    """Test files without their source file."""
    expected = {mirror(source.path) for source in files}
    return sorted(test for test in tests if test.rpartition("/")[2].startswith("test_") and test not in expected)


def unit_tests() -> set[str]:
    return {source.path for source in sources("tests/unit")}


def test_every_source_has_its_test() -> None:
    assert_none(untested(sources("gateway", "serving"), unit_tests()))


def test_every_test_has_its_source() -> None:
    fakes = [Source(s.path.removeprefix("tests/"), s.text) for s in sources("tests/fakes")]
    assert_none(orphans([*sources("gateway", "serving"), *fakes], unit_tests()))


def test_every_exception_is_needed() -> None:
    sizes = {source.path: source.lines for source in sources("gateway", "serving")}
    assert [p for p in COVERED_ELSEWHERE if sizes.get(p, 0) <= TRIVIAL or mirror(p) in unit_tests()] == []
