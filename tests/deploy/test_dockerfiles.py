"""The Dockerfiles: pinned, not root, with a health check; and their requirements are those of the development lock."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.deploy.dockerfile import DOCKERFILES, health_command, last, stages
from tests.deploy.expressions import ROOT

each = pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.stem)
IGNORED = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]


@each
def test_base_images_are_pinned(file: Path) -> None:
    for stage in stages(file):
        image = stage[0].words()[0]
        assert re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*", image), image


@each
def test_the_last_stage_runs_as_a_user_and_says_how_it_is(file: Path) -> None:
    final = stages(file)[-1]
    assert last(final, "USER") == "10001:10001"
    assert health_command(final)[0].startswith("python")
    assert "--start-period=" in last(final, "HEALTHCHECK")
    for name in ("ENTRYPOINT", "CMD"):
        assert next(i for i in final if i.name == name).listed()


@each
def test_what_is_copied_is_there_and_not_ignored(file: Path) -> None:
    for stage in stages(file):
        for copy in (i for i in stage if i.name == "COPY" and "--from=" not in i.text):
            for source in copy.words()[:-1]:
                assert (ROOT / source).exists(), source
                assert included(source), source
    assert not included(".env")
    assert not included("deploy/docker/.env")


def included(name: str) -> bool:
    """Whether .dockerignore lets a file through: the last pattern that fits it, or a folder above it, decides."""
    parts = name.split("/")
    paths = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    verdict = True
    for pattern in IGNORED:
        if any(fnmatch(path, pattern.lstrip("!")) for path in paths):
            verdict = pattern.startswith("!")
    return verdict


@each
def test_what_pip_installs_is_pinned(file: Path) -> None:
    commands = [c for stage in stages(file) for i in stage if i.name == "RUN" for c in i.text.split("&&")]
    for command in (c for c in commands if "pip install" in c):
        assert "--no-deps" in command
        assert "--require-hashes" in command or re.search(r"( \.|==[\d.]+)\s*$", command), command


def test_pytorch_is_the_one_of_the_setup() -> None:
    wanted = re.search(r"^torch=(.+)$", (ROOT / "scripts/setup").read_text(), re.MULTILINE)
    assert wanted is not None
    assert f"torch=={wanted[1]}\n" in (ROOT / "deploy/docker/engine-cpu.Dockerfile").read_text()


def test_the_gpu_image_is_of_the_vllm_that_the_project_names() -> None:
    (image,) = stages(ROOT / "deploy/docker/engine-gpu.Dockerfile")[0][0].words()
    assert f'"vllm=={image.partition(":v")[2]}"' in (ROOT / "pyproject.toml").read_text()


def locked(file: str) -> dict[str, str]:
    """Name -> version, marker and hashes."""
    blocks = re.findall(r"^([\w.-]+)(==.*?)(?=^\S|\Z)", (ROOT / file).read_text(), re.MULTILINE | re.DOTALL)
    return dict(blocks)


def test_the_image_has_what_the_tests_ran_with() -> None:
    image, development = locked("deploy/docker/requirements.txt"), locked("requirements/dev.txt")
    assert {name for name in image if development.get(name) != image[name]} == set()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = {re.split(r"[\[><=;~]", text)[0].replace(".", "-") for text in project["dependencies"]}
    assert direct - image.keys() == set()
    assert image.keys() & {"pytest", "mypy", "hypothesis"} == set()
