"""The only reader of the environment: the process's variables, a `.env` beside the configuration, proxies."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
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
