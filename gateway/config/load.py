"""`routing.yaml` -> Runtime: read, substitute, validate, cross-check, compile. All problems are told at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gateway.config.compile import Inputs, compile_runtime
from gateway.config.crosscheck import Checks, crosscheck
from gateway.config.document import parse
from gateway.config.env import environment
from gateway.config.problems import ConfigError, Problem
from gateway.config.runtime import Runtime
from gateway.config.secrets import clean, switch_off
from gateway.config.substitute import substitute
from gateway.config.validate import validate


def load(path: Path, environ: Mapping[str, str] | None = None) -> Runtime:
    """Read, check and compile one file. Raises ConfigError with every problem found.

    `environ` stands in for the process's variables; a `.env` beside the file is read below either.
    """
    data = _read(path)
    document = parse(data, str(path))
    source = document.source
    variables = environment(path.absolute().parent, environ)
    expansion = substitute(document.values, variables)
    notices = clean(expansion, source)
    off = switch_off(expansion)
    findings = [*document.findings, *expansion.findings]
    known_wrong = {finding.path for finding in findings}
    checked = validate(expansion.values, expansion.variables)
    findings += [finding for finding in checked.findings if finding.path not in known_wrong]
    if checked.config:
        pruned = (*checked.pruned, *known_wrong)
        findings += crosscheck(Checks(checked.config, document.values, off, pruned, expansion.variables))
    if findings or checked.config is None:
        raise ConfigError(source.problem(finding) for finding in findings)
    return compile_runtime(Inputs(path, data, checked.config, expansion.values, source, variables, off, tuple(notices)))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        problem = Problem(str(path), None, "", "there is no such file", "`turnout init` writes one")
        raise ConfigError([problem]) from None
    except OSError as error:
        raise ConfigError([Problem(str(path), None, "", f"cannot be read: {error.strerror}")]) from None
