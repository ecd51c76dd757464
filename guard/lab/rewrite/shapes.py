"""The shapes in which agents' frameworks show one result: JSON, YAML, Python, blocks, lines."""

from __future__ import annotations

import json
from io import StringIO
from typing import TYPE_CHECKING, Final

from ruamel.yaml import YAML

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.model import Json

CUT_AT: Final = 1500
"""Characters that are left of a result that is cut."""


def _items(document: Json) -> list[Json]:
    return document if isinstance(document, list) else [document]


def _yaml(document: Json) -> str:
    stream = StringIO()
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.allow_unicode = True
    writer.dump(document, stream)
    return stream.getvalue().removesuffix("...\n").rstrip("\n")


def _blocks(document: Json) -> Json:
    texts = [
        item if isinstance(item, str) else json.dumps(item, indent=2) for item in _items(document)
    ]
    blocks: list[Json] = [{"type": "text", "text": text} for text in texts]
    return {"content": blocks}


def _headers(document: Json) -> str:
    """Return each item as lines ``Name: value``, items parted by an empty line."""
    parts = []
    for item in _items(document):
        if isinstance(item, dict):
            item = "\n".join(f"{key.title()}: {_flat(value)}" for key, value in item.items())  # noqa: PLW2901
        parts.append(str(item))
    return "\n\n".join(parts)


def _flat(value: Json) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


SHAPES: Final[dict[str, Callable[[Json], Json]]] = {
    "json": json.dumps,
    "indented": lambda document: json.dumps(document, indent=2, ensure_ascii=False),
    "yaml": _yaml,
    "python": repr,
    "blocks": _blocks,
    "lines": lambda document: "\n".join(map(json.dumps, _items(document))),
    "structure": lambda document: document,
}
"""Shapes that keep every field apart from the next."""
LOSSY: Final[dict[str, Callable[[Json], Json]]] = {
    "headers": _headers,
    "cut": lambda document: _yaml(document)[:CUT_AT],
    "cut_json": lambda document: json.dumps(document)[:CUT_AT],
}
"""Shapes in which a field cannot be told from text that imitates one, or that lack their end."""
