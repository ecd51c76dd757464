"""Types of fields that several sections of a policy share.

Validation of a document against a pydantic model, with errors in plain words.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
)

from guard.core.jsonpath import compile_path, joined_path
from guard.core.mappings import PathQuery
from guard.core.model import Integrity, Json
from guard.values.folds import FORMS, Folds
from guard.values.patterns import parse_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


ModelT = TypeVar("ModelT", bound=BaseModel)
ValueT = TypeVar("ValueT")
Location: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from the root of the document to a value."""


def suggestion(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return ``; did you mean `x`?``, or nothing where nothing is near."""
    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=cutoff)
    return f"; did you mean `{close[0]}`?" if close else ""


def text_as(what: str, read: Callable[[str], ValueT]) -> Callable[[Json], ValueT]:
    """Return a validator of texts; ``what`` says what is expected where there is another value."""

    def validated(value: Json) -> ValueT:
        if not isinstance(value, str):
            raise ValueError(what)  # noqa: TRY004  (pydantic reports ValueErrors)
        return read(value)

    return validated


def one_of(known: Mapping[str, ValueT]) -> Callable[[Json], ValueT]:
    """Return a validator of names; it returns the value that a name stands for."""

    def validated(value: Json) -> ValueT:
        if not isinstance(value, str) or value not in known:
            listed = ", ".join(f"`{name}`" for name in known)
            raise ValueError(f"must be one of {listed}{suggestion(str(value), known)}")
        return known[value]

    return validated


def validate(
    model: type[ModelT], value: Json, nested: dict[Location, type[BaseModel]]
) -> tuple[ModelT | None, list[tuple[Location, str]]]:
    """Return the validated model, or what is wrong as (location, message) pairs.

    JSON mode lets lists be tuples and texts be enumerations, and nothing else be anything else.
    """
    try:
        return model.model_validate_json(json.dumps(value)), []
    except ValidationError as error:
        items = error.errors(include_url=False)
        return None, [
            (item["loc"], _message(item, nested)) for item in items if not _follows(item, items)
        ]


def _follows(item: Any, items: Iterable[Any]) -> bool:
    """Return whether a list is too short only because of an item that was refused."""
    depth = len(item["loc"])
    return item["type"] == "too_short" and any(
        other["loc"][:depth] == item["loc"] and len(other["loc"]) > depth for other in items
    )


_TYPES: Final = {
    "string_type": "a text; quote it",
    "bool_type": "`true` or `false`",
    "int_type": "a whole number",
    "float_type": "a number",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of fields",
    "model_type": "a mapping of fields",
    "model_attributes_type": "a mapping of fields",
}


def _message(item: Any, nested: dict[Location, type[BaseModel]]) -> str:
    """Put one pydantic error into the style of the guard."""
    location: Location = item["loc"]
    name = _field(location)
    kind: str = item["type"]
    context: dict[str, Any] = item.get("ctx", {})
    if kind == "missing":
        return f"missing field `{name}`"
    if kind == "extra_forbidden":
        model = nested.get(tuple(step for step in location[:-1] if isinstance(step, str)))
        fields = model.model_fields.items() if model else ()
        return f"unknown field `{name}`" + suggestion(name, [i.alias or n for n, i in fields])
    if kind in {"enum", "literal_error"}:
        expected = str(context["expected"]).replace("'", "`")
        hint = suggestion(str(item["input"]), re.findall(r"`([^`]+)`", expected))
        return f"`{name}` must be {expected}{hint}"
    if kind in _TYPES:
        return f"`{name}` must be {_TYPES[kind]}"
    plain = f": {item['msg'][:1].lower()}{item['msg'][1:]}"
    return f"`{name}`" + {
        "too_short": plain
        if context.get("actual_length")
        else " is empty; write at least one item or remove it",
        "string_pattern_mismatch": f" must match `{context.get('pattern')}`",
        "value_error": f": {context.get('error')}",
    }.get(kind, plain)


def _field(location: Location) -> str:
    """Return the name of a field for messages: ``status``, or ``status[0]`` for an item."""
    last = location[-1] if location else "policy"
    if isinstance(last, int):
        return f"{location[-2]}[{last}]" if len(location) > 1 else f"item {last}"
    return last


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
