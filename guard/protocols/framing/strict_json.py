"""JSON that can be read one way only.  Pure: no I/O.

RFC 8259 leaves duplicate names, lone surrogates and numbers beyond a double to the reader; two
readers that differ there are how an inspector is walked around.  All of these are refused.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final, NoReturn

from guard.core.errors import MessageError

if TYPE_CHECKING:
    from guard.core.model import Json

CODE: Final = "bad_json"


def parse_json(body: bytes) -> Json:
    """Return the value of a JSON document.

    Raises:
        MessageError: not UTF-8, a byte order mark, not JSON, a duplicate object name, ``NaN`` or
            an infinity, a lone surrogate, or nested too deep.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MessageError(CODE, f"the body is not utf-8 at byte {error.start}") from error
    if text.startswith("\ufeff"):
        raise MessageError(CODE, "the body starts with a byte order mark")
    try:
        value = _DECODER.decode(text)
    except RecursionError as error:
        raise MessageError(CODE, "the body is nested too deep") from error
    except json.JSONDecodeError as error:
        raise MessageError(CODE, f"the body is not json: {error.msg} at {error.pos}") from error
    except ValueError as error:
        raise MessageError(CODE, f"the body is not json: {error}") from error
    if "\\u" in text:
        _refuse_surrogates(value)
    return value


def _pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise MessageError("duplicate_key", "the body has a duplicate object name")
    return value


def _constant(name: str) -> NoReturn:
    raise MessageError(CODE, f"the body has the constant `{name}`, which is not json")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise MessageError(CODE, "the body has a number beyond a double")
    return value


def _refuse_surrogates(value: Json) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise MessageError(CODE, "the body has a lone surrogate") from error


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float
)
