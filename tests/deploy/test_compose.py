"""docker-compose.yml as docker-compose itself reads it: what is published, and how each service is fenced in."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config import load
from serving.engine import model_ids
from serving.engine.command import command
from tests.deploy.expressions import ROOT

EXAMPLE = (ROOT / "deploy/docker/env.example").read_text()
SECRETS = re.findall(r"^(\w+)=$", EXAMPLE, re.MULTILINE)
FILLED = {name: f"secret-word-{number}" for number, name in enumerate(SECRETS)}
OWN = ("gateway", "engine-cpu", "engine-gpu")


def compose(folder: Path, variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("docker-compose")
    assert program is not None, "install the package docker-compose"
    file = folder / "variables"
    file.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    command = [program, "-f", str(ROOT / "docker-compose.yml"), "--env-file", str(file), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin"})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Both profiles, with every variable of the example in use."""
    shown = dict(re.findall(r"^#(\w+)=(.*)$", EXAMPLE, re.MULTILINE))
    profiles = ("--profile", "cpu", "--profile", "gpu")
    done = compose(tmp_path_factory.mktemp("compose"), FILLED | shown, *profiles, "config")
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = yaml.safe_load(done.stdout)
    return read


@pytest.mark.slow
@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    done = compose(tmp_path, {n: v for n, v in FILLED.items() if n != name}, "config")
    assert done.returncode != 0
    assert name in done.stderr


@pytest.mark.slow
def test_only_the_gateway_is_published(whole: dict[str, Any]) -> None:
    ports = {name: service["ports"] for name, service in whole["services"].items() if "ports" in service}
    assert ports == {"gateway": [{"published": 8080, "target": 8080}], "grafana": ["127.0.0.1:3000:3000/tcp"]}
    outside = {name for name, s in whole["services"].items() if "outside" in s["networks"]}
    assert outside == set(ports)
    assert {name: bool(n.get("internal")) for name, n in whole["networks"].items()} == {
        "outside": False, "data": True, "watch": True,
    }  # fmt: skip
    reachable = {name: set(s["networks"]) for name, s in whole["services"].items()}
    assert reachable["redis"] == reachable["postgres"] == {"data"}
    assert reachable["engine-cpu"] == reachable["engine-gpu"] == {"watch"}


@pytest.mark.slow
def test_every_service_is_fenced_in(whole: dict[str, Any]) -> None:
    for name, service in whole["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not re.match(r"(0|root)\b", service["user"]), name
        assert {"cpus", "memory"} <= service["deploy"]["resources"]["limits"].keys(), name
        assert any(mount.split(":")[0] == "/tmp" for mount in service["tmpfs"]), name
        assert service["restart"] == "unless-stopped", name


@pytest.mark.slow
def test_every_service_has_a_health_check_and_a_pinned_image(whole: dict[str, Any]) -> None:
    for name, service in whole["services"].items():
        if name in OWN:
            assert "HEALTHCHECK" in (ROOT / service["build"]["dockerfile"]).read_text()
        else:
            assert service["healthcheck"]["test"], name
            assert re.fullmatch(r"[\w/]+:v?\d+\.\d+[\w.-]*", service["image"]), name
    assert set(OWN) <= whole["services"].keys()


@pytest.mark.slow
def test_what_is_mounted_exists_and_is_read_only(whole: dict[str, Any]) -> None:
    mounts = [mount.split(":") for s in whole["services"].values() for mount in s.get("volumes", ())]
    folders = [(Path(source), mode) for source, _, mode in mounts if source.startswith("/")]
    assert len(folders) == 5
    assert [folder for folder, mode in folders if mode != "ro"] == []
    assert [folder for folder, _ in folders if not folder.is_dir() and "checkpoints" not in folder.parts] == []


def test_the_example_knows_every_variable() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    used = set(re.findall(r"(?<!\$)\$\{(\w+)", text)) | set(
        re.findall(r"^      ([A-Z_]+):(?:  .*)?$", text, re.MULTILINE)
    )
    shown = set(re.findall(r"^#?(\w+)=", EXAMPLE, re.MULTILINE))
    assert used - {"COMPOSE_PROFILES"} == shown - {"COMPOSE_PROFILES"}


@pytest.mark.slow
def test_secrets_are_in_environments_only(whole: dict[str, Any]) -> None:
    for name, service in whole["services"].items():
        told = service.pop("environment", {})
        assert not any(secret in yaml.safe_dump(service) for secret in FILLED.values()), name
        service["environment"] = told
    holders = {n: {k for k, v in FILLED.items() if v in str(s["environment"])} for n, s in whole["services"].items()}
    assert holders == {
        "gateway": {"TURNOUT_KEY", "TURNOUT_ADMIN_KEY", "REDIS_PASSWORD", "POSTGRES_PASSWORD"},
        "redis": {"REDIS_PASSWORD"},
        "postgres": {"POSTGRES_PASSWORD"},
        "prometheus": {"TURNOUT_ADMIN_KEY"},
        "grafana": {"GRAFANA_PASSWORD"},
        "engine-cpu": set(),
        "engine-gpu": set(),
    }


def test_the_gateways_file_loads_with_and_without_upstreams() -> None:
    file = ROOT / "deploy/docker/routing.yaml"
    need = {"REDIS_URL": "redis://redis:6379/0", "DATABASE_URL": "postgresql://u:p@postgres/turnout"}
    need |= {"TURNOUT_KEY": "k", "TURNOUT_ADMIN_KEY": "a"}
    bare = load(file, need)
    assert {name for name, upstream in bare.upstreams.items() if upstream.off is None} == set()
    full = load(file, need | {"TAOTOKEN_KEY": "t", "ENGINE_URL": "http://engine:8100", "TURNOUT_WORKERS": "2"})
    assert {name for name, upstream in full.upstreams.items() if upstream.off is None} == {"taotoken", "local"}
    assert full.gateway.workers == 2
    assert full.gateway.metrics == "admin"


@pytest.mark.slow
def test_prometheus_takes_its_configuration(whole: dict[str, Any]) -> None:
    program = shutil.which("promtool")
    assert program is not None, "install the package prometheus"
    file = ROOT / "deploy/prometheus/prometheus.yml"
    done = subprocess.run([program, "check", "config", "--syntax-only", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = {job["job_name"]: job for job in yaml.safe_load(file.read_text())["scrape_configs"]}
    assert jobs["turnout"]["static_configs"] == [{"targets": ["gateway:8080"]}]
    assert jobs["turnout"]["authorization"]["credentials_file"] in " ".join(
        whole["services"]["prometheus"]["entrypoint"]
    )


def test_the_demo_engine_listens_where_the_gateway_looks_for_it(tmp_path: Path) -> None:
    runtime = load(ROOT / "deploy/docker/engine-cpu.yaml", {"ENGINE_CHECKPOINT": str(tmp_path)})
    (upstream,) = runtime.upstreams.values()
    assert upstream.engine is not None
    told = command(upstream, model_ids(runtime, upstream), 0, "cpu").argv
    flags = dict(pairwise(told))
    assert (flags["--host"], flags["--port"], flags["--served-model-name"]) == ("0.0.0.0", "8100", "demo-ft")
