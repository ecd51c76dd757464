"""Validation of a document against a pydantic model, with errors in plain words."""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from guard.core.model import Json

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
        return f"unknown field `{name}`" + suggestion(name, _spelled(model) if model else ())
    if kind in {"enum", "literal_error"}:
        expected = str(context["expected"]).replace("'", "`")
        hint = suggestion(str(item["input"]), re.findall(r"`([^`]+)`", expected))
        return f"`{name}` must be {expected}{hint}"
    if kind in _TYPES:
        return f"`{name}` must be {_TYPES[kind]}"
    plain: str = item["msg"]
    return f"`{name}`" + {
        "too_short": " is empty; write at least one item or remove it",
        "string_pattern_mismatch": f" must match `{context.get('pattern')}`",
        "value_error": f": {context.get('error')}",
    }.get(kind, f": {plain[:1].lower()}{plain[1:]}")


def _spelled(model: type[BaseModel]) -> list[str]:
    """Return the names of a model's fields as a file writes them."""
    return [info.alias or name for name, info in model.model_fields.items()]


def _field(location: Location) -> str:
    """Return the name of a field for messages: ``status``, or ``status[0]`` for an item."""
    last = location[-1] if location else "policy"
    if isinstance(last, int):
        return f"{location[-2]}[{last}]" if len(location) > 1 else f"item {last}"
    return last
