"""The only reader of the environment: the process's variables, a `.env` beside the configuration, proxies."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gateway.config.network import is_private, listed
from gateway.config.problems import ConfigError, Problem

PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")

_LINE = re.compile(
    r"""\s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*
    (?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<bare>[^'"\s#](?:[^\n]*?))?)
    \s*(?:(?<=\s)\#.*|(?<==)\#.*)?""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = MappingProxyType({"n": "\n", "r": "\r", "t": "\t"})


def environment(folder: Path, environ: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Variables of the process (or of `environ`) on top of those in the folder's `.env`. Raises ConfigError."""
    return {**_dotenv(folder / ".env"), **(os.environ if environ is None else environ)}


def proxy_for(environ: Mapping[str, str], scheme: str, host: str, port: int) -> str | None:
    """The proxy URL for an address, None for a direct call. Raises ValueError that names the variable at fault.

    Lower case wins over upper case. Loopback and private addresses never use a proxy, whatever NO_PROXY says.
    """
    exceptions = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if is_private(host) or listed(host, port, exceptions):
        return None
    for name in (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"):
        if value := environ.get(name, "").strip():
            url = value if "://" in value else f"http://{value}"
            if url.partition("://")[0].lower() not in PROXY_SCHEMES:
                raise ValueError(f"{name} must be one of {', '.join(f'{kind}://' for kind in PROXY_SCHEMES)}")
            return url
    return None


@dataclass(frozen=True, slots=True)
class LedgerVariables:
    """What the environment says about the ledger; `routing.yaml` has no keys for it."""

    state_folder: Path | None = None
    """TURNOUT_STATE_DIR: the journal's folder is in it; None: beside the database."""
    content_share: float = 0.0
    """TURNOUT_LOG_CONTENT: share of the calls whose prompt text is kept."""
    content_days: float = 30.0
    """TURNOUT_LOG_CONTENT_DAYS: how long."""


def ledger_variables(folder: Path, environ: Mapping[str, str] | None = None) -> LedgerVariables:
    """Read from the process's variables (or `environ`) and the folder's `.env`. Raises ConfigError."""
    values = environment(folder, environ)
    state = values.get("TURNOUT_STATE_DIR")
    share = _number(values, "TURNOUT_LOG_CONTENT", 0.0, most=1.0)
    days = _number(values, "TURNOUT_LOG_CONTENT_DAYS", 30.0, most=36_500.0)
    return LedgerVariables((folder / state).absolute() if state else None, share, days)


@dataclass(frozen=True, slots=True)
class EngineVariables:
    """What the environment says about engines that Turnout runs; `routing.yaml` has no keys for it."""

    speculation_optional: bool
    """TURNOUT_SPECULATION: `required` (the default) or `optional`."""
    cache_folder: Path
    """For what can be made anew: `.turnout` in TURNOUT_STATE_DIR, else beside the configuration."""


def engine_variables(folder: Path, environ: Mapping[str, str] | None = None) -> EngineVariables:
    """Read from the process's variables (or `environ`) and the folder's `.env`. Raises ConfigError."""
    values = environment(folder, environ)
    wanted = values.get("TURNOUT_SPECULATION") or "required"
    if wanted not in ("required", "optional"):
        raise ConfigError([Problem("TURNOUT_SPECULATION", None, "", f"must be required or optional, not '{wanted}'")])
    state = folder / values.get("TURNOUT_STATE_DIR", "")
    return EngineVariables(wanted == "optional", state.absolute() / ".turnout")


def _number(values: Mapping[str, str], name: str, default: float, most: float) -> float:
    text = values.get(name) or str(default)
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        raise ConfigError([Problem(name, None, "", f"must be a number from 0 to {most:g}, not '{text}'")])
    return number


def parse_dotenv(text: str) -> tuple[dict[str, str], list[int]]:
    """KEY=VALUE lines: `export`, comments and quotes understood, nothing substituted; and the lines that are none."""
    values: dict[str, str] = {}
    wrong: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if match := _LINE.fullmatch(line):
            values[match["name"]] = _unquoted(match)
        else:
            wrong.append(number)
    return values, wrong


def _unquoted(match: re.Match[str]) -> str:
    if match["double"] is not None:
        return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), match["double"])
    return match["single"] or match["bare"] or ""


def _dotenv(file: Path) -> dict[str, str]:
    try:
        values, wrong = parse_dotenv(file.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(str(file), None, "", f"cannot be read: {type(error).__name__}")]) from None
    if wrong:
        raise ConfigError(Problem(str(file), line, "", "not a KEY=VALUE line") for line in wrong)
    return values
