"""From checked configuration to Runtime."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

import pytest

from gateway.config.runtime import Budget, GatewaySettings, Limit, Limits, Timeouts


def test_defaults_are_those_of_the_runtime_types(load_text, minimal):
    runtime = load_text(minimal)
    assert runtime.gateway == GatewaySettings()
    assert runtime.upstreams["up"].speaks == {"chat", "completions", "embeddings"}
    assert runtime.models["fast"].context is None
    assert runtime.routes["auto"].sticky == "conversation"


def test_the_gateway_section(load_text, minimal):
    text = (
        minimal
        + """\
gateway:
  host: "::1"
  port: 0
  admin_key: " adm "
  redis_url: redis://h
  metrics: admin
  max_body_mb: 0.5
  cors: https://a.example
  trusted_proxies: [10.0.0.0/8]
  timeouts: {connect: 1, total: 2.5}
  attempts: 2
  breaker: {failures: 3}
"""
    )
    assert load_text(text).gateway == GatewaySettings(
        host="::1",
        port=0,
        admin_key="adm",
        redis_url="redis://h",
        metrics="admin",
        max_body_bytes=512 * 1024,
        cors=("https://a.example",),
        trusted_proxies=("10.0.0.0/8",),
        timeouts=Timeouts(connect=1, total=2.5),
        attempts=2,
        breaker_failures=3,
    )


@pytest.mark.parametrize("empty", ["", "''", "${NONE:-}"])
def test_empty_texts_of_the_gateway_are_absent(load_text, minimal, empty):
    text = minimal + "gateway:\n" + "".join(f"  {key}: {empty}\n" for key in ("redis_url", "database_url", "admin_key"))
    assert load_text(text).gateway == GatewaySettings()


def test_replicas_of_an_engine_take_the_following_ports(load_text, minimal):
    text = minimal.replace(
        'base_url: "http://127.0.0.1:9999/v1"', "engine: {checkpoint: /abs/c, port: 9000, replicas: 3}"
    )
    upstream = load_text(text).upstreams["up"]
    assert [target.url for target in upstream.targets] == [f"http://127.0.0.1:{port}/v1" for port in (9000, 9001, 9002)]
    assert upstream.engine is not None
    assert str(upstream.engine.checkpoint) == "/abs/c"
    assert upstream.engine.args == {}
    assert upstream.engine.speculative is None


def test_a_model_holds_its_upstream(load_text, minimal):
    runtime = load_text(minimal.replace("model: m", "model: [m, n], context: 32k"))
    assert runtime.models["fast"].upstream is runtime.upstreams["up"]
    assert (runtime.models["fast"].ids, runtime.models["fast"].context) == (("m", "n"), 32000)


def test_a_static_key(load_text, minimal):
    text = minimal + "keys: [{name: ci, key: k, team: t, models: auto, limits: {concurrency: 2}, budget: {usd: 5}}]"
    (key,) = load_text(text).keys
    assert (key.name, key.key, key.team, key.models) == ("ci", "k", "t", ("auto",))
    assert key.limits == Limit(concurrency=2)
    assert key.budget == Budget(Decimal(5), "month")


def test_limits_and_team_budgets(load_text, minimal):
    text = """
limits:
  default: {requests_per_minute: 600}
  teams: {platform: {tokens_per_minute: 2M, budget: {usd: 0.1, per: day}}}
  models: {fast: {concurrency: 8}}
  on_redis_failure: closed
"""
    limits = load_text(minimal + text).limits
    assert limits.default == Limit(requests_per_minute=600)
    assert limits.teams == {"platform": Limit(tokens_per_minute=2_000_000)}
    assert limits.team_budgets == {"platform": Budget(Decimal("0.1"), "day")}
    assert (limits.models, limits.routes) == ({"fast": Limit(concurrency=8)}, {})
    assert limits.on_redis_failure == "closed"
    assert load_text(minimal).limits == Limits()


def test_no_keys_section_is_open_and_an_empty_one_is_not(load_text, minimal):
    assert load_text(minimal).open_to_all
    assert not load_text(minimal + "keys: []").open_to_all


def test_a_runtime_cannot_be_changed(load_text, minimal):
    runtime = load_text(minimal)
    with pytest.raises(dataclasses.FrozenInstanceError):
        runtime.digest = "x"
    for mapping in (runtime.upstreams, runtime.models, runtime.routes):
        with pytest.raises(TypeError):
            mapping["x"] = None


def test_speaks(load_text, minimal):
    text = minimal.replace('/v1"}', '/v1", speaks: [chat, messages]}')
    assert load_text(text).upstreams["up"].speaks == {"chat", "messages"}


PUBLIC = ("http://127.0.0.1:9999/v1", "https://taotoken.net/api/v1")
PROXY = {"HTTPS_PROXY": "http://user:pw@proxy:3128"}


def test_the_proxy_of_an_upstream(load_text, minimal):
    public = minimal.replace(*PUBLIC)
    assert load_text(public, PROXY).upstreams["up"].proxy == "http://user:pw@proxy:3128"
    assert load_text(public, {}).upstreams["up"].proxy is None
    assert load_text(public.replace("{base_url", "{trust_env: false, base_url"), PROXY).upstreams["up"].proxy is None
    assert load_text(minimal, PROXY).upstreams["up"].proxy is None


def test_the_proxy_may_stand_in_the_dotenv(load_text, minimal, tmp_path):
    (tmp_path / ".env").write_text("HTTPS_PROXY=http://proxy:1\n")
    assert load_text(minimal.replace(*PUBLIC)).upstreams["up"].proxy == "http://proxy:1"


def test_a_proxy_that_cannot_be_used(refused, minimal):
    (problem,) = refused(minimal.replace(*PUBLIC), {"HTTPS_PROXY": "ftp://u:s3cr3t@h"})
    assert problem.path == "upstreams.up.base_url"
    assert problem.message.startswith("its proxy cannot be used: HTTPS_PROXY must be one of http://")
    assert "s3cr3t" not in str(problem)


def test_replicas_on_both_sides_of_the_proxy(refused, minimal):
    text = minimal.replace('"http://127.0.0.1:9999/v1"', "[https://10.0.0.1/v1, https://h.net/v1]")
    (problem,) = refused(text, PROXY)
    assert "some of these addresses need the proxy and some do not" in problem.message


def test_the_digest_follows_text_variables_and_proxies(load_text, minimal):
    text = minimal.replace(*PUBLIC).replace("model: m", 'model: "${ID:-m}"')
    digest = load_text(text, {}).digest
    assert len(digest) == 12
    assert int(digest, 16) >= 0
    assert load_text(text, {"UNRELATED": "x"}).digest == digest
    others = {
        load_text(text, {"ID": "n"}).digest,
        load_text(text, PROXY).digest,
        load_text(text + "# comment\n").digest,
    }
    assert len(others | {digest}) == 4


def test_a_route_whose_models_are_all_off_is_told(load_text, minimal):
    text = minimal.replace("{base_url", "{optional: true, api_key: '${K}', base_url")
    assert [notice.text for notice in load_text(text).notices] == [
        "off: K is not set",
        "no model of this route can be used: calls will get 503",
    ]
