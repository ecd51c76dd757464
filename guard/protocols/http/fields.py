"""Query strings, forms and multipart bodies that can be read one way only.  Pure: no I/O.

Servers disagree on duplicate fields, broken escapes, ``;`` as a separator, and on what a multipart
body may have around its parts.  All of that is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError

if TYPE_CHECKING:
    from guard.core.model import Json

CODE: Final = "bad_fields"
FIELD_LIMIT: Final = 1000
"""Fields of one query or form, parts of one body."""
_ESCAPED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_BROKEN: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLAIN: Final = re.compile(r"[\x21-\x7e]*", re.ASCII)
_DISPOSITION: Final = re.compile(
    r'form-data; ?name="(?P<name>[^"\\\r\n]*)"(?:; ?filename="(?P<filename>[^"\\\r\n]*)")?'
)
_PART_TYPE: Final = re.compile(r"[\x20-\x7e]{0,200}")
_SETTLED: Final = b"\0boundary"
"""Stands for a boundary; no body that has it is settled."""
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]", re.ASCII)
_UTF8: Final = frozenset({"utf-8", "utf8"})


def parse_fields(text: str, repeat: frozenset[str]) -> dict[str, Json]:
    """Return the fields of ``a=1&b=2``.

    Args:
        text: a query without its ``?``, or the body of a form.
        repeat: names that may occur more than once; their value is a list, however often they do.

    Raises:
        MessageError: a field twice (also in other case), a broken escape, a ``;``, an empty field.
    """
    if not text:
        return {}
    if not _PLAIN.fullmatch(text) or ";" in text or _BROKEN.search(text):
        raise MessageError(CODE, "the fields have a broken escape, a `;` or a raw character")
    pairs: list[tuple[str, Json]] = []
    for piece in text.split("&"):
        name, _, value = piece.partition("=")
        if not name:
            raise MessageError(CODE, "the fields have one without a name")
        pairs.append((_decoded(name), _decoded(value)))
    return collect(pairs, repeat)


def collect(pairs: list[tuple[str, Json]], repeat: frozenset[str]) -> dict[str, Json]:
    """Return fields by name.

    Raises:
        MessageError: too many, or a name twice that is not in ``repeat``.
    """
    if len(pairs) > FIELD_LIMIT:
        raise MessageError(CODE, f"there are more than {FIELD_LIMIT} fields")
    fields: dict[str, Json] = {}
    spelling: dict[str, str] = {}
    for name, value in pairs:
        if spelling.setdefault(name.casefold(), name) != name:
            raise MessageError("ambiguous_key", "two fields differ in case only")
        if name in repeat:
            fields.setdefault(name, []).append(value)
        elif name in fields:
            raise MessageError("duplicate_key", "a field occurs twice")
        else:
            fields[name] = value
    return fields


def parameters(content_type: str) -> dict[str, str]:
    """Return the parameters of a content type, names in lower case, quotes removed.

    Raises:
        MessageError: one occurs twice, or is malformed.
    """
    found: dict[str, str] = {}
    for piece in content_type.split(";")[1:]:
        name, equals, value = piece.strip().partition("=")
        name = name.strip().lower()
        if not equals or not name or name in found or "\\" in value:
            raise MessageError("bad_content_type", "the content type is malformed", status=415)
        found[name] = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
        if '"' in found[name]:
            raise MessageError("bad_content_type", "the content type is malformed", status=415)
    return found


def check_charset(content_type: str) -> None:
    """Refuse a charset other than UTF-8.

    Raises:
        MessageError: there is one.
    """
    charset = parameters(content_type).get("charset", "utf-8")
    if charset.lower() not in _UTF8:
        message = f"charset `{charset[:40]}` is not understood, send utf-8"
        raise MessageError("bad_content_type", message, status=415)


def parse_multipart(body: bytes, content_type: str, repeat: frozenset[str]) -> dict[str, Json]:
    """Return the fields of a ``multipart/form-data`` body.

    A file is an object with ``filename``, ``content_type`` and ``content``; bytes in it that are
    not UTF-8 appear as U+FFFD.

    Raises:
        MessageError: anything but parts between boundaries, or a part that servers may read
            differently.
    """
    boundary = parameters(content_type).get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        raise MessageError("bad_content_type", "the boundary is missing or malformed", status=415)
    mark = b"--" + boundary.encode("ascii")
    pieces = (b"\r\n" + body).split(b"\r\n" + mark)
    if pieces[0] or pieces[-1] not in {b"--", b"--\r\n"}:
        raise MessageError(CODE, "the body has something before its first or after its last part")
    if len(pieces) - 2 > FIELD_LIMIT:
        raise MessageError(CODE, f"there are more than {FIELD_LIMIT} fields")
    return collect([_part(piece) for piece in pieces[1:-1]], repeat)


def without_boundary(body: bytes, content_type: str) -> bytes:
    """Return a ``multipart`` body with the same boundary whatever its client has drawn.

    A body in which the boundary stands elsewhere than between parts is returned as it is: two
    bodies are the same here only if they differ in nothing but the boundary.

    Raises:
        MessageError: the content type is malformed.
    """
    boundary = parameters(content_type).get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary) or _SETTLED in body:
        return body
    mark = boundary.encode("ascii")
    pieces = (b"\r\n" + body).split(b"\r\n--" + mark)
    if len(pieces) < 2 or any(mark in piece for piece in pieces):  # noqa: PLR2004  (no boundary)
        return body
    ends = [piece.startswith((b"\r\n", b"--\r\n")) or piece == b"--" for piece in pieces[1:]]
    return (b"\r\n--" + _SETTLED).join(pieces) if all(ends) else body


def _part(piece: bytes) -> tuple[str, Json]:
    head, blank, content = piece.partition(b"\r\n\r\n")
    if not blank or not head.startswith(b"\r\n"):
        raise MessageError(CODE, "a part has no head")
    headers = _part_headers(head[2:])
    disposition = _DISPOSITION.fullmatch(headers.get("content-disposition", ""))
    if disposition is None or "%" in disposition["name"]:
        raise MessageError(CODE, "a part has a disposition that can be read in two ways")
    kind = headers.get("content-type")
    if kind is not None:
        check_charset(kind)
    if disposition["filename"] is not None:
        text = content.decode("utf-8", "replace")
        file = {"filename": disposition["filename"], "content_type": kind or "", "content": text}
        return disposition["name"], file
    return disposition["name"], _utf8(content)


def _part_headers(head: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in _utf8(head).split("\r\n"):
        name, colon, value = line.partition(":")
        name = name.lower()
        # A transfer encoding would have to be undone; nobody sends one in a form.
        known = name in {"content-disposition", "content-type"}
        if not colon or not known or name in headers:
            raise MessageError(CODE, "a part has a header that the guard does not understand")
        headers[name] = value.strip(" ")
    if not _PART_TYPE.fullmatch(headers.get("content-type", "")):
        raise MessageError(CODE, "a part has a malformed content type")
    return headers


def _decoded(text: str) -> str:
    plain = text.replace("+", " ").encode("ascii")
    return _utf8(_ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), plain))


def _utf8(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MessageError(CODE, "a field is not utf-8") from error
    if "\x00" in text:
        raise MessageError(CODE, "a field has a zero byte")
    return text
