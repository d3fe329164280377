"""`${VAR}`, `${VAR:-default}` and everything that only looks like them."""

from __future__ import annotations

import pytest

from gateway.config.substitute import substitute

ENVIRON = {"A": "one", "B": "two", "EMPTY": "", "MONEY": "a$b${A}", "YAML": "[1, 2]: #x"}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${A}", "one"),
        ("x${A}y${B}z", "xoneytwoz"),
        ("${A:-other}", "one"),
        ("${NONE:-other}", "other"),
        ("${NONE:-}", ""),
        ("${EMPTY:-other}", "other"),
        ("${EMPTY}", ""),
        ("${NONE:-a b:c-d/$e}", "a b:c-d/$e"),
        ("a$b", "a$b"),
        ("$A", "$A"),
        ("pa$$word", "pa$$word"),
        ("$", "$"),
        ("$${A}", "${A}"),
        ("$${", "${"),
        ("$$${A}", "$${A}"),
        ("$${A} ${A}", "${A} one"),
        ("${MONEY}", "a$b${A}"),
        ("${YAML}", "[1, 2]: #x"),
    ],
)
def test_a_text(written, value):
    expansion = substitute({"k": written}, ENVIRON)
    assert expansion.values == {"k": value}
    assert (expansion.findings, expansion.unset) == ([], [])


def test_references_inside_lists_and_mappings():
    expansion = substitute({"a": [{"b": "${A}"}, ["${B}"]]}, ENVIRON)
    assert expansion.values == {"a": [{"b": "one"}, ["two"]]}
    assert expansion.variables == {("a", 0, "b"): ("A",), ("a", 1, 0): ("B",)}


def test_only_texts_are_looked_at():
    values = {"a": 1, "b": True, "c": None, "d": 1.5, "${A}": "k"}
    assert substitute(values, ENVIRON).values == values


def test_an_unset_variable_is_kept_with_its_place():
    assert substitute({"a": {"b": "x${NONE}"}}, ENVIRON).unset == [(("a", "b"), "NONE")]


@pytest.mark.parametrize("written", ["${", "${}", "${A", "${1A}", "${A-x}", "${A:?x}", "${A B}", "x ${ A }"])
def test_what_is_no_reference_is_a_finding(written):
    (finding,) = substitute({"a": written}, ENVIRON).findings
    assert finding.path == ("a",)
    assert finding.message.startswith("not a reference")


@pytest.mark.parametrize("written", ["${NONE:-${OTHER:-x}}", "a ${NONE:-${A}} b"])
def test_a_default_with_a_reference_in_it_is_a_finding(written):
    (finding,) = substitute({"a": written}, ENVIRON).findings
    assert (finding.path, "a default cannot hold another reference" in finding.message) == (("a",), True)


def test_the_original_stays_as_it_is():
    values = {"a": ["${A}"]}
    substitute(values, ENVIRON)
    assert values == {"a": ["${A}"]}


def test_a_number_or_flag_may_come_from_a_variable(load_text, minimal):
    text = (
        minimal.replace("model: m", 'model: m, context: "${SIZE}"') + "gateway: {port: '${PORT}', host: '${HOST:-::1}'}"
    )
    runtime = load_text(text, {"SIZE": "32768", "PORT": "9000"})
    assert (runtime.models["fast"].context, runtime.gateway.port, runtime.gateway.host) == (32768, 9000, "::1")


def test_a_variable_that_is_not_set_is_named_with_its_key_path(refused, minimal):
    (problem,) = refused(minimal.replace("model: m", 'model: "${MODEL_ID}"'))
    assert (problem.line, problem.path, problem.message) == (5, "models.fast.model", "MODEL_ID is not set")


def test_a_value_that_does_not_fit_names_the_variable_and_not_the_value(refused, minimal):
    (problem,) = refused(minimal + "gateway:\n  port: ${PORT}\n", {"PORT": "secret"})
    assert str(problem).endswith(":9: gateway.port: must be a whole number (comes from PORT)")
