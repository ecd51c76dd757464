"""JSONPath (RFC 9535) over call arguments, with a fast path for the usual two forms.  Pure: no I/O.

The functions ``match`` and ``search`` are left out: their expressions run on a backtracking
engine, and a caller of the guard chooses the text they would run on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jsonpath import JSONPath, JSONPathEnvironment

    from guard.core.mappings import PathQuery
    from guard.core.model import Json

_BETWEEN: Final = re.compile(r" / (?=\$)")
_STEPS: Final = re.compile(r"\$(?:\.[A-Za-z_][A-Za-z0-9_]*|\[\*\])+", re.ASCII)
_STEP: Final = re.compile(r"\.(\w+)|\[\*\]", re.ASCII)


@cache
def _environment() -> JSONPathEnvironment:
    """Return the library's reader, imported for the first path that needs it: few policies do."""
    from jsonpath import JSONPathEnvironment

    environment = JSONPathEnvironment(strict=True)
    for name in ("match", "search"):
        environment.function_extensions.pop(name, None)
    return environment


def member_path(parent: str, key: str) -> str:
    r"""Return the normalised path of an object member: ``$`` and ``to`` give ``$['to']``.

    Quotes and backslashes in the key are escaped, so that no key can imitate another path.
    """
    if "'" in key or "\\" in key:
        key = key.replace("\\", "\\\\").replace("'", "\\'")
    return f"{parent}['{key}']"


@dataclass(slots=True)
class _Query:
    """A compiled path."""

    text: str
    name: str | None = None
    path: str = "$"
    member: str | None = None
    parts: tuple[PathQuery, ...] = ()


@dataclass(slots=True)
class _StepsQuery(_Query):
    """Names and ``[*]`` in any order, which most paths are: look-ups instead of an interpreter."""

    steps: tuple[str, ...] = ()
    """Names; an empty one for all children."""

    def find(self, document: Json) -> Iterable[tuple[str, Json]]:
        if self.member is not None:
            is_there = isinstance(document, dict) and self.member in document
            return ((self.path, document[self.member]),) if is_there else ()
        found: list[tuple[str, Json]] = [("$", document)]
        for step in self.steps:
            before, found = found, []
            for path, value in before:
                if not step:
                    found += _children(path, value)
                elif isinstance(value, dict) and step in value:
                    found.append((member_path(path, step), value[step]))
        return found


def _children(path: str, value: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield f"{path}[{index}]", item
    elif isinstance(value, dict):
        for key, item in value.items():
            yield member_path(path, key), item


@dataclass(slots=True)
class _GeneralQuery(_Query):
    """Any other path."""

    query: JSONPath | None = None

    def find(self, document: Json) -> Iterator[tuple[str, Json]]:
        if self.query is None or not isinstance(document, dict | list):
            # The library would read a text as JSON.  A scalar has no parts.
            yield from () if self.query is None or self.query.segments else (("$", document),)
            return
        for node in self.query.finditer(document):
            path = "$"
            for step in node.parts:
                path = f"{path}[{step}]" if isinstance(step, int) else member_path(path, str(step))
            yield path, cast("Json", node.obj)

    def __reduce__(self) -> tuple[Callable[[str], PathQuery], tuple[str]]:
        return compile_path, (self.text,)


def compile_path(text: str) -> PathQuery:
    """Return a compiled JSONPath.  Its ``find`` yields (normalised path, value) pairs.

    Raises:
        ValueError: the text is not a JSONPath, or calls ``match`` or ``search``.
    """
    if _STEPS.fullmatch(text) is not None:
        steps = tuple(_STEP.findall(text))
        if steps[1:] in {(), ("",)} and steps[0]:
            whole = steps[0] if len(steps) == 1 else None
            return _StepsQuery(text, steps[0], member_path("$", steps[0]), whole, steps=steps)
        return _StepsQuery(text, steps=steps)
    from jsonpath import JSONPathError

    try:
        query = _environment().compile(text)
    except (JSONPathError, ValueError) as error:
        # To show where it is, the library's message looks into the text, which may be empty.
        detail = str(error.args[0] if error.args else "").split("\n", maxsplit=1)[0]
        raise ValueError(f"`{text}` is not a JSONPath (write e.g. `$.to`): {detail}") from error
    # Strict paths are never compound.
    return _GeneralQuery(text, query=cast("JSONPath", query))


@dataclass(slots=True)
class _JoinedQuery(_Query):
    """Several arguments that name one thing together."""

    def find(self, document: Json) -> Iterator[tuple[str, Json]]:
        found = [[*part.find(document)] for part in self.parts]
        texts = [
            str(nodes[0][1])
            for nodes in found
            if len(nodes) == 1 and isinstance(nodes[0][1], str | int)
        ]
        if len(texts) == len(found) and all(texts):
            yield found[-1][0][0], "/".join(texts)


def joined_path(text: str) -> PathQuery:
    """Return a compiled JSONPath, or several with `` / `` between them as one.

    The latter yields the texts that the paths select, one each, with ``/`` between them, and
    nothing where a path selects nothing, several values or no scalar.

    Raises:
        ValueError: a path is not a JSONPath.
    """
    parts = tuple(map(compile_path, _BETWEEN.split(text)))
    return parts[0] if len(parts) == 1 else _JoinedQuery(text, parts=parts)
