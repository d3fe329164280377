"""`turnout init`: write a commented routing.yaml that loads, and the key into a `.env` that only its owner reads."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console
from rich.prompt import Prompt

from gateway.config import ConfigError, load

VARIABLE = "TAOTOKEN_KEY"

HEAD = """\
# Turnout's configuration. `turnout check` validates it; docs/reference/config.md describes every key.
# ${VAR} and ${VAR:-default} are read from the environment and from the .env beside this file.
version: 1

gateway:
  host: 127.0.0.1     # another address needs at least one key below
  port: 8080

upstreams:
  taotoken:
    base_url: https://taotoken.net/api
    api_key: ${TAOTOKEN_KEY}     # in .env, never in this file
    optional: true               # without the key this upstream is off, and the rest works
"""
ENGINE = """\
  local:
    engine:                      # a vLLM that `turnout up` starts
      checkpoint: {checkpoint}
      port: 8100
      # tensor_parallel: 8
      # speculative: {{method: mtp, num_speculative_tokens: 3}}
      # args: {{max-model-len: 32768}}
"""
MODELS = """\

models:               # your names for the models of the upstreams
  fast: {{upstream: taotoken, model: kimi-k2.5, context: 262144}}
  {quality}
  fallback:
    upstream: taotoken
    model: [claude-sonnet-4-6, claude-sonnet]     # the first that the upstream lists
    context: 200000

routes:               # names that clients send as `model`
  auto:
    default: {default}
    fallback: {fallback}

# keys:               # without keys anybody on this machine may call, and nobody else
#   - {{name: me, key: "${{TURNOUT_KEY}}"}}
"""
LOCAL_QUALITY = "quality: {upstream: local, model: kimi-k2.5-ft}"
REMOTE_QUALITY = "quality: {upstream: taotoken, model: kimi-k2.5, context: 262144}     # until you serve your own"

Ask = Callable[[str, bool], str]


def init(
    path: Path,
    taotoken_key: str | None,
    checkpoint: str | None,
    force: bool,
    interactive: bool,
    *,
    environ: Mapping[str, str] | None = None,
    ask: Ask | None = None,
    console: Console | None = None,
) -> int:
    """Write `path` and, where a key is given, the `.env` beside it. Returns 0, or 2 with the reason printed.

    What is not given is asked for, where there is a terminal to ask on.
    """
    console = console or Console(highlight=False, soft_wrap=True)
    if path.exists() and not force:
        return _refuse(console, f"{path} exists; --force replaces it")
    if interactive and (ask or sys.stdin.isatty()):
        ask = ask or _prompt(console)
        taotoken_key = ask("TaoToken key (empty: none)", True) if taotoken_key is None else taotoken_key
        checkpoint = ask("Folder of your checkpoint (empty: none)", False) if checkpoint is None else checkpoint
    key = (taotoken_key or "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        return _refuse(console, "the key has white space, control or non-ASCII characters inside")
    if key and _other_key(path.parent / ".env", key) and not force:
        return _refuse(console, f"{path.parent / '.env'} has another {VARIABLE}; --force replaces it")
    return _write(console, path, key, (checkpoint or "").strip(), environ)


def _write(console: Console, path: Path, key: str, checkpoint: str, environ: Mapping[str, str] | None) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, render(checkpoint), 0o644)
    console.print(f"wrote {path}", markup=False)
    if key:
        dotenv = path.parent / ".env"
        _replace(dotenv, _with_key(dotenv.read_text("utf-8") if dotenv.exists() else "", key), 0o600)
        console.print(f"wrote {VARIABLE} to {dotenv} (keep it out of version control)", markup=False)
    try:
        runtime = load(path, environ)
    except ConfigError as error:  # an existing .env can be at fault
        return _refuse(console, str(error))
    for notice in runtime.notices:
        console.print(f"{notice.where}: {notice.text}", markup=False)
    return 0


def render(checkpoint: str) -> str:
    """The text of a routing.yaml; without a checkpoint all models are upstream ones."""
    if not checkpoint:
        return HEAD + MODELS.format(quality=REMOTE_QUALITY, default="fast", fallback="[fallback]")
    quoted = json.dumps(checkpoint.replace("${", "$${"), ensure_ascii=False)
    models = MODELS.format(quality=LOCAL_QUALITY, default="quality", fallback="[fast, fallback]")
    return HEAD + ENGINE.format(checkpoint=quoted) + models


def _prompt(console: Console) -> Ask:
    return lambda question, secret: Prompt.ask(
        question, console=console, password=secret, default="", show_default=False
    )


def _refuse(console: Console, text: str) -> int:
    console.print(text, style="red", markup=False)
    return 2


def _is_ours(line: str) -> bool:
    return re.match(rf"\s*(export\s+)?{VARIABLE}\s*=", line) is not None


def _other_key(dotenv: Path, key: str) -> bool:
    lines = dotenv.read_text("utf-8").splitlines() if dotenv.exists() else []
    return any(_is_ours(line) and line != _assignment(key) for line in lines)


def _with_key(text: str, key: str) -> str:
    kept = [line for line in text.splitlines() if not _is_ours(line)]
    return "\n".join([*kept, _assignment(key)]) + "\n"


def _assignment(key: str) -> str:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'{VARIABLE}="{escaped}"'


def _replace(path: Path, text: str, mode: int) -> None:
    """Write a file as a whole, readable for nobody else before it has its mode."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(name).chmod(mode)
    Path(name).replace(path)
