"""The whole way from file to Runtime, the design's own example first."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import ConfigError, load
from gateway.config.runtime import Runtime

EXAMPLE = Path(__file__).with_name("design_example.yaml")
ENVIRON = {"TAOTOKEN_KEY": "sk-tao-secret", "TURNOUT_CI_KEY": "ci-secret"}


@pytest.fixture
def example() -> Runtime:
    return load(EXAMPLE, ENVIRON)


def test_the_design_example_loads(example):
    assert list(example.models) == ["fast", "quality", "fallback"]
    assert example.routes["auto"].default == "fast"
    assert example.routes["auto"].fallback == ("quality", "fallback")
    assert [rule.name for rule in example.routes["auto"].rules] == ["task", "long", "chat"]
    assert [target.url for target in example.upstreams["taotoken"].targets] == ["https://taotoken.net/api/v1"]
    assert example.upstreams["taotoken"].api_key == "sk-tao-secret"
    assert example.models["fallback"].ids == ("claude-sonnet-4-6", "claude-sonnet")
    assert [key.name for key in example.keys] == ["ci"]
    assert not example.open_to_all


def test_the_engine_of_the_example(example):
    upstream = example.upstreams["local"]
    assert upstream.engine is not None
    assert upstream.engine.checkpoint == EXAMPLE.parent / "checkpoints/kimi-k2.5-ft"
    assert upstream.engine.speculative == {"method": "mtp", "num_speculative_tokens": 3}
    assert upstream.engine.args == {"max-model-len": 262144, "tool-call-parser": "kimi_k2"}
    assert [target.url for target in upstream.targets] == ["http://127.0.0.1:8100/v1"]
    assert upstream.off is None


def test_without_its_variables_the_optional_upstream_of_the_example_is_off():
    runtime = load(EXAMPLE, {})
    assert runtime.upstreams["taotoken"].off == "TAOTOKEN_KEY is not set"
    assert runtime.upstreams["local"].off is None
    assert runtime.keys == ()
    assert not runtime.open_to_all


def test_no_secret_shows_in_the_text_of_a_runtime(example):
    assert "secret" not in repr(example)


def test_a_dotenv_beside_the_file_is_read_below_the_environment(load_text, minimal, tmp_path):
    text = minimal.replace("model: m", 'model: "${ID}", context: "${SIZE}"')
    (tmp_path / ".env").write_text("ID=from-file\nSIZE=10\n")
    model = load_text(text, {"SIZE": "20"}).models["fast"]
    assert (model.ids, model.context) == (("from-file",), 20)


def test_a_missing_file_says_how_to_get_one(tmp_path):
    with pytest.raises(ConfigError, match=r"routing.yaml: there is no such file, `turnout init` writes one"):
        load(tmp_path / "routing.yaml", {})


def test_a_folder_in_place_of_the_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, {})


def test_the_message_carries_file_line_key_path_and_suggestion(refused, minimal, tmp_path):
    (problem,) = refused(minimal.replace("upstream:", "upstraem:"))
    place = f"{tmp_path / 'routing.yaml'}:5"
    assert str(problem) == f'{place}: models.fast.upstraem: unknown key, did you mean "upstream"?'


def test_all_problems_are_told_at_once_in_the_order_of_the_file(refused):
    problems = refused("""\
version: 2
gateway: {port: x, prot: 1}
upstreams:
  up: {base_url: "ftp://h", api_key: "${NO_KEY}"}
models:
  fast: {upstream: pu, model: m, model: n}
routes:
  fast: {default: fsat}
""")
    assert [(problem.line, problem.path) for problem in problems] == [
        (1, "version"),
        (2, "gateway.port"),
        (2, "gateway.prot"),
        (4, "upstreams.up.api_key"),
        (4, "upstreams.up.base_url"),
        (6, "models.fast.model"),
        (6, "models.fast.upstream"),
        (8, "routes.fast"),
        (8, "routes.fast.default"),
    ]


def test_what_is_wrong_causes_no_second_message_elsewhere(refused, minimal):
    problems = refused(minimal.replace("upstream: up", "upstream: 7"))
    assert [problem.path for problem in problems] == ["models.fast.upstream"]


def test_an_absent_section_means_off(load_text, minimal):
    runtime = load_text(minimal)
    assert runtime.open_to_all
    assert runtime.notices == ()
    assert runtime.gateway.host == "127.0.0.1"


def test_a_section_without_content_is_absent(load_text, minimal):
    assert load_text(minimal + "limits:\nkeys:\ngateway:\ntasks:\n").open_to_all
