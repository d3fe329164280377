"""The environment, `.env` and proxies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.config import ConfigError
from gateway.config.env import (
    EngineVariables,
    LedgerVariables,
    engine_variables,
    environment,
    ledger_variables,
    parse_dotenv,
    proxy_for,
)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=x", "x"),
        ("A = x ", "x"),
        ("export A=x", "x"),
        ("  A=x", "x"),
        ("A=", ""),
        ("A=''", ""),
        ('A=""', ""),
        ("A='a b # c'", "a b # c"),
        ('A="a b # c"', "a b # c"),
        ("A=a b", "a b"),
        ("A=a # comment", "a"),
        ("A=a#b", "a#b"),
        ("A=#b", ""),
        ("A= # comment", ""),
        ("A='x' # comment", "x"),
        (r'A="line\nnext \"q\" \\ \$"', 'line\nnext "q" \\ $'),
        (r"A='line\n'", r"line\n"),
        ("A=sk-a=b==", "sk-a=b=="),
        ("A=$HOME/${X}", "$HOME/${X}"),
        ("A=it's", "it's"),
        ("A=键", "键"),
    ],
)
def test_a_line_of_a_dotenv(line, value):
    assert parse_dotenv(line) == ({"A": value}, [])


def test_comments_and_empty_lines_are_skipped_and_the_last_value_wins():
    assert parse_dotenv("# A=0\n\n  # x\nA=1\r\nA=2\n") == ({"A": "2"}, [])


@pytest.mark.parametrize("line", ["A", "1A=x", "A B=x", "A='x", 'A="x', "A='x' y", "=x", "A-B=x"])
def test_what_is_no_assignment(line):
    assert parse_dotenv(f"X=1\n{line}\n") == ({"X": "1"}, [2])


def test_the_environment_wins_over_the_file(tmp_path):
    (tmp_path / ".env").write_text("A=file\nB=file\n")
    assert environment(tmp_path, {"A": "process"}) == {"A": "process", "B": "file"}


def test_without_a_mapping_it_is_the_environment_of_the_process(tmp_path):
    assert environment(tmp_path) == dict(os.environ)


def test_a_wrong_line_is_refused_with_its_number_and_without_its_text(tmp_path):
    (tmp_path / ".env").write_text("A=1\nsk-secret\n")
    with pytest.raises(ConfigError, match=r"\.env:2: not a KEY=VALUE line") as caught:
        environment(tmp_path, {})
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / ".env").write_bytes(b"A=\xff")
    with pytest.raises(ConfigError, match="UnicodeDecodeError"):
        environment(tmp_path, {})


PROXIES = {"HTTP_PROXY": "http://plain:3128", "HTTPS_PROXY": "http://secure:3128", "ALL_PROXY": "socks5://any:1080"}


@pytest.mark.parametrize(
    ("environ", "scheme", "proxy"),
    [
        (PROXIES, "http", "http://plain:3128"),
        (PROXIES, "https", "http://secure:3128"),
        ({"ALL_PROXY": "socks5h://any:1080"}, "https", "socks5h://any:1080"),
        ({"https_proxy": "http://lower:1", "HTTPS_PROXY": "http://upper:1"}, "https", "http://lower:1"),
        ({"http_proxy": "http://h:1"}, "https", None),
        ({"https_proxy": "h:3128"}, "https", "http://h:3128"),
        ({"https_proxy": " "}, "https", None),
        ({}, "https", None),
    ],
)
def test_the_proxy_for_a_scheme(environ, scheme, proxy):
    assert proxy_for(environ, scheme, "taotoken.net", 443) == proxy


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "10.1.2.3", "192.168.0.4", "172.16.0.1", "vllm"])
def test_loopback_and_private_addresses_never_use_one(host):
    assert proxy_for(PROXIES, "http", host, 8000) is None


@pytest.mark.parametrize("variable", ["no_proxy", "NO_PROXY"])
def test_no_proxy_is_honoured(variable):
    environ = {**PROXIES, variable: "example.org, .taotoken.net"}
    assert proxy_for(environ, "https", "api.taotoken.net", 443) is None
    assert proxy_for(environ, "https", "other.net", 443) == "http://secure:3128"


def test_a_proxy_of_an_unknown_kind_is_refused_by_the_name_of_its_variable():
    with pytest.raises(ValueError, match="HTTPS_PROXY must be one of") as caught:
        proxy_for({"HTTPS_PROXY": "ftp://user:secret@h"}, "https", "h.net", 443)
    assert "secret" not in str(caught.value)


def test_the_ledgers_variables(tmp_path: Path) -> None:
    assert ledger_variables(tmp_path, {}) == LedgerVariables(None, 0.0, 30.0)
    given = {"TURNOUT_STATE_DIR": "state", "TURNOUT_LOG_CONTENT": "0.25", "TURNOUT_LOG_CONTENT_DAYS": "7"}
    assert ledger_variables(tmp_path, given) == LedgerVariables(tmp_path / "state", 0.25, 7.0)
    (tmp_path / ".env").write_text("TURNOUT_LOG_CONTENT=1\n")
    assert ledger_variables(tmp_path, {"TURNOUT_LOG_CONTENT_DAYS": ""}).content_share == 1.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("TURNOUT_LOG_CONTENT", "1.5"), ("TURNOUT_LOG_CONTENT", "yes"), ("TURNOUT_LOG_CONTENT_DAYS", "-1")],
)
def test_wrong_variables_of_the_ledger(name: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{name}: must be a number from 0"):
        ledger_variables(tmp_path, {name: value})


def test_what_the_environment_says_about_engines(tmp_path):
    assert engine_variables(tmp_path, {}) == EngineVariables(False, tmp_path / ".turnout")
    given = {"TURNOUT_SPECULATION": "optional", "TURNOUT_STATE_DIR": "state"}
    assert engine_variables(tmp_path, given) == EngineVariables(True, tmp_path / "state" / ".turnout")
    with pytest.raises(ConfigError, match=r"TURNOUT_SPECULATION.*must be required or optional, not 'maybe'"):
        engine_variables(tmp_path, {"TURNOUT_SPECULATION": "maybe"})
