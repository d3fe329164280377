"""The value types that the schema is made of, each with the JSON Schema that an editor is given."""

from __future__ import annotations

import re
from ipaddress import ip_network
from types import MappingProxyType
from typing import Annotated, Any, Literal

import re2
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

MULTIPLES = MappingProxyType({"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9})


class Section(BaseModel):
    """A mapping of the file: unknown keys refused, a key without a value counts as absent."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        known = {field.alias or name for name, field in cls.model_fields.items()}
        if not isinstance(value, dict):
            return value
        return {key: item for key, item in value.items() if item is not None or key not in known}


def _no_bool(value: Any) -> Any:
    """Python counts true as 1, a user does not."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _no_number(value: Any) -> Any:
    """Pydantic takes 1 and "on" for true; only true and false are."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _count(value: Any) -> Any:
    """`300M` as 300000000."""
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmMgGbB]?)", value.strip())):
        return round(float(match[1]) * MULTIPLES[match[2].lower()])
    return _no_bool(value)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _regex(value: str) -> str:
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(value, options)
    except re2.error:
        raise ValueError("RE2 cannot read this expression (it has no look-around and no back-references)") from None
    return value


def _origin(value: str) -> str:
    if value != "*" and not re.fullmatch(r"https?://[!-.0-~]+", value):
        raise ValueError("must be origins such as https://app.example (no path, no closing slash), or *")
    return value


def _network(value: str) -> str:
    try:
        ip_network(value, strict=False)
    except ValueError:
        raise ValueError("must be IP addresses or networks such as 10.0.0.0/8") from None
    return value


def _metrics(value: Any) -> Any:
    if value in ("open", "admin"):
        return value
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65536:
        raise ValueError("must be open, admin or a port")
    return value


def _listed_schema(minimum: int) -> WithJsonSchema:
    text = {"type": "string", "minLength": 1}
    return WithJsonSchema({"anyOf": [text, {"type": "array", "items": text, "minItems": minimum}]})


Text = Annotated[str, StringConstraints(min_length=1)]
Name = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,128}$")]
"""Names travel in headers and labels."""
Flag = Annotated[bool, BeforeValidator(_no_number), WithJsonSchema({"type": "boolean"})]
Whole = Annotated[int, BeforeValidator(_no_bool)]
Number = Annotated[float, BeforeValidator(_no_bool)]
Positive = Annotated[int, Field(ge=1), BeforeValidator(_no_bool)]
Seconds = Annotated[float, Field(gt=0), BeforeValidator(_no_bool)]
Dollars = Annotated[float, Field(gt=0), BeforeValidator(_no_bool)]
Rate = Annotated[float, Field(ge=0), BeforeValidator(_no_bool)]
Share = Annotated[float, Field(gt=0, lt=1), BeforeValidator(_no_bool)]
Port = Annotated[int, Field(ge=1, le=65535), BeforeValidator(_no_bool)]
Count = Annotated[
    int,
    BeforeValidator(_count),
    Field(ge=1, le=1 << 53),  # up to there every store counts exactly
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": "^[0-9.]+ ?[kKmMgGbB]?$", "examples": ["300M"]},
            ]
        }
    ),
]
Listed = Annotated[tuple[Text, ...], BeforeValidator(_listed), Field(min_length=1), _listed_schema(1)]
"""One text or a list of at least one."""
MaybeListed = Annotated[tuple[Text, ...], BeforeValidator(_listed), _listed_schema(0)]
Origins = Annotated[tuple[Annotated[Text, AfterValidator(_origin)], ...], BeforeValidator(_listed), _listed_schema(0)]
Networks = Annotated[tuple[Annotated[Text, AfterValidator(_network)], ...], BeforeValidator(_listed), _listed_schema(0)]
Regex = Annotated[Text, AfterValidator(_regex)]
Metrics = Annotated[
    Literal["open", "admin"] | int,
    BeforeValidator(_metrics),
    WithJsonSchema({"anyOf": [{"enum": ["open", "admin"]}, {"type": "integer", "minimum": 1, "maximum": 65535}]}),
]
