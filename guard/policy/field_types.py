"""Types of fields that several sections of a policy share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator

from guard.core.jsonpath import compile_path, joined_path
from guard.core.model import Integrity
from guard.policy.wording import one_of
from guard.values.folds import FORMS, Folds
from guard.values.patterns import parse_pattern

if TYPE_CHECKING:
    from guard.core.model import Json

_DURATION: Final = re.compile(r"([1-9][0-9]{0,8})(s|m|h|d)", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MAX_DURATION: Final = 366 * 86400
_INTERNAL: Final = re.compile(r"(\*\.)?[^\s*@/:]+", re.ASCII)


def duration_seconds(value: Json) -> int:
    """Return a duration such as `24h` in seconds.

    Raises:
        ValueError: it is none.
    """
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    if not 0 < seconds <= MAX_DURATION:
        raise ValueError("a duration is a number with `s`, `m`, `h` or `d`, e.g. `24h`")
    return seconds


def short_seconds(value: Json) -> int:
    """Return a duration of a day at most in seconds.

    Raises:
        ValueError: it is none.
    """
    seconds = duration_seconds(value)
    if seconds > _SECONDS["d"]:
        raise ValueError("it lasts a day at most: `24h`")
    return seconds


def _version(value: Json) -> Json:
    # True equals 1 in Python, and so it would in a Literal.
    if isinstance(value, bool):
        raise ValueError("must be `1`")  # noqa: TRY004  (pydantic reports ValueErrors)
    return value


def _path(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError("a JSONPath is a text such as `$.to`")  # noqa: TRY004  (pydantic reports ValueErrors)
    compile_path(value)
    return value


def _receiver_path(value: Json) -> str:
    if not isinstance(value, str):
        return _path(value)
    joined_path(value)
    return value


def _destination(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError("a destination is a text such as `alice@example.com`; quote it")  # noqa: TRY004  (as above)
    parse_pattern(value)
    return value


def _internal(value: Json) -> str:
    text = _destination(value)
    if not _INTERNAL.fullmatch(text):
        raise ValueError(f"`{text}` is not a domain; write `example.com` or `*.example.com`")
    return text


def _allowed(value: Json) -> str:
    text = _destination(value)
    if text.strip() == "*":
        raise ValueError(
            "`*` would allow every destination; write a `destination` rule with status "
            "`external` if that is meant"
        )
    return text


def _private(value: Json) -> str:
    text = _destination(value)
    if parse_pattern(text).form not in {"host", "subdomains", "network"}:
        raise ValueError(f"`{text}` is not a host or network; write `db.internal` or `10.0.0.0/8`")
    return text


def _fold(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a fold is a text: {FORMS}")  # noqa: TRY004  (pydantic reports ValueErrors)
    Folds.parse((value,))
    return value


def _label(value: Json) -> Integrity:
    labels = {label.name.lower(): label for label in Integrity}
    if not isinstance(value, str) or value not in labels:
        raise ValueError(one_of(value, labels))
    return labels[value]


Version = Annotated[Literal[1], BeforeValidator(_version)]
Label = Annotated[
    Integrity,
    PlainValidator(
        _label,
        json_schema_input_type=Literal["untrusted", "advisory", "authenticated", "trusted"],
    ),
    PlainSerializer(lambda label: label.name.lower()),
]
Duration = Annotated[
    int,
    PlainValidator(
        duration_seconds,
        json_schema_input_type=Annotated[str, Field(pattern=f"^{_DURATION.pattern}$")],
    ),
    PlainSerializer(lambda seconds: seconds),
]
ShortDuration = Annotated[
    int,
    PlainValidator(
        short_seconds,
        json_schema_input_type=Annotated[str, Field(pattern=f"^{_DURATION.pattern}$")],
    ),
    PlainSerializer(lambda seconds: seconds),
]
"""A duration of a day at most."""
ReceiverPath = Annotated[str, PlainValidator(_receiver_path, json_schema_input_type=str)]
PathText = Annotated[str, PlainValidator(_path, json_schema_input_type=str)]
DestinationText = Annotated[str, PlainValidator(_destination, json_schema_input_type=str)]
InternalText = Annotated[str, PlainValidator(_internal, json_schema_input_type=str)]
AllowedText = Annotated[str, PlainValidator(_allowed, json_schema_input_type=str)]
FoldText = Annotated[str, PlainValidator(_fold, json_schema_input_type=str)]
PrivateText = Annotated[str, PlainValidator(_private, json_schema_input_type=str)]
Port = Annotated[int, Field(ge=1, le=65535)]
