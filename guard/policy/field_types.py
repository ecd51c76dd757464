"""Types of fields that several sections of a policy share."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
)

from guard.core.jsonpath import compile_path, joined_path
from guard.core.mappings import PathQuery
from guard.core.model import Integrity, Json
from guard.policy.validation import one_of, text_as
from guard.values.folds import FORMS, Folds
from guard.values.patterns import parse_pattern

if TYPE_CHECKING:
    from collections.abc import Callable


MadeT = TypeVar("MadeT")
_DURATION: Final = re.compile(r"([1-9][0-9]{0,8})(s|m|h|d)", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DOMAIN: Final = re.compile(r"(\*\.)?[^\s*@/:]+", re.ASCII)


def made(of: type[MadeT], entry: BaseModel, **further: Any) -> MadeT:
    """Return a dataclass whose fields are those of an entry, but for what is said further."""
    names = {one.name for one in fields(cast("Any", of))} & type(entry).model_fields.keys()
    return of(**{name: getattr(entry, name) for name in names - further.keys()}, **further)


def duration_seconds(value: Json) -> int:
    """Return a duration such as `24h` in seconds.

    Raises:
        ValueError: it is none.
    """
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    if not 0 < seconds <= 366 * _SECONDS["d"]:
        raise ValueError("a duration is a number with `s`, `m`, `h` or `d`, e.g. `24h`")
    return seconds


def _short(seconds: int) -> int:
    if seconds > _SECONDS["d"]:
        raise ValueError("it lasts a day at most: `24h`")
    return seconds


def _version(value: Json) -> Json:
    # True equals 1 in Python, and so it would in a Literal.
    if isinstance(value, bool):
        raise ValueError("must be `1`")  # noqa: TRY004  (pydantic reports ValueErrors)
    return value


def _internal(text: str) -> None:
    parse_pattern(text)
    if not _DOMAIN.fullmatch(text):
        raise ValueError(f"`{text}` is not a domain; write `example.com` or `*.example.com`")


def _allowed(text: str) -> None:
    parse_pattern(text)
    if text.strip() == "*":
        raise ValueError(
            "`*` would allow every destination; write a `destination` rule with status "
            "`external` if that is meant"
        )


def _private(text: str) -> None:
    if parse_pattern(text).form not in {"host", "subdomains", "network"}:
        raise ValueError(f"`{text}` is not a host or network; write `db.internal` or `10.0.0.0/8`")


def _path(read: Callable[[str], PathQuery]) -> PlainValidator:
    validator = text_as("a JSONPath is a text such as `$.to`", read)
    return PlainValidator(validator, json_schema_input_type=str)


def checked(
    check: Callable[[str], object],
    what: str = "a destination is a text such as `alice@example.com`; quote it",
) -> PlainValidator:
    """Return a validator of texts that a check takes without a ``ValueError``."""

    def read(text: str) -> str:
        check(text)
        return text

    return PlainValidator(text_as(what, read), json_schema_input_type=str)


Version = Annotated[Literal[1], BeforeValidator(_version)]
Label = Annotated[
    Integrity,
    PlainValidator(
        one_of({label.name.lower(): label for label in Integrity}),
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
ShortDuration = Annotated[Duration, AfterValidator(_short)]
"""A duration of a day at most."""
_AS_WRITTEN: Final = PlainSerializer(lambda query: query.text)
PathText = Annotated[PathQuery, _path(compile_path), _AS_WRITTEN]
"""A JSONPath; compiled once it is read."""
ReceiverPath = Annotated[PathQuery, _path(joined_path), _AS_WRITTEN]
DestinationText = Annotated[str, checked(parse_pattern)]
InternalText = Annotated[str, checked(_internal)]
AllowedText = Annotated[str, checked(_allowed)]
PrivateText = Annotated[str, checked(_private)]
FoldText = Annotated[str, checked(lambda text: Folds.parse((text,)), f"a fold is a text: {FORMS}")]
Port = Annotated[int, Field(ge=1, le=65535)]
