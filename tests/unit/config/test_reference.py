"""The generated pages are current, and the JSON Schema says the same as the schema."""

from __future__ import annotations

import json

from gateway.config.fields import Section
from gateway.config.reference import FOLDER, json_schema, page, parts

AGAIN = "run python -m gateway.config.reference"


def test_the_page_is_current():
    assert (FOLDER / "config.md").read_text(encoding="utf-8") == page(), AGAIN


def test_the_json_schema_is_current():
    assert json.loads((FOLDER / "routing.schema.json").read_text(encoding="utf-8")) == json_schema(), AGAIN


def test_every_section_has_its_chapter():
    def below(section: type[Section]) -> set[type[Section]]:
        return {section, *(kind for child in section.__subclasses__() for kind in below(child))}

    written = {part.section for part in parts()}
    assert written == {
        kind for kind in below(Section) if kind.__module__ in ("gateway.config.schema", "gateway.config.engine")
    }


def test_every_key_has_a_meaning():
    for part in parts():
        assert part.section.__doc__
        for name, field in part.section.model_fields.items():
            assert field.description, f"{part.title}.{name}"


def test_a_link_leads_to_a_chapter():
    text = page()
    anchors = {
        "".join(letter for letter in line.lower() if letter.isalnum() or letter in "_-")
        for line in text.splitlines()
        if line.startswith("## ")
    }
    assert {link.partition(")")[0] for link in text.split("](#")[1:]} <= anchors


def test_an_editor_may_be_given_a_reference_for_a_number_and_a_choice():
    definitions = json_schema()["$defs"]
    reference = {"type": "string", "pattern": r"\$\{"}
    assert reference in definitions["Gateway"]["properties"]["port"]["anyOf"]
    assert reference in definitions["Route"]["properties"]["sticky"]["anyOf"]
    assert definitions["Gateway"]["additionalProperties"] is False


def test_the_yaml_of_the_guide_loads(load_text):
    guide = (FOLDER.parent / "guides" / "configuration.md").read_text(encoding="utf-8")
    runtime = load_text(guide.split("```yaml\n")[1].split("```")[0], {"TAOTOKEN_KEY": "k", "TURNOUT_CI_KEY": "c"})
    assert list(runtime.models) == ["fast", "quality"]
