"""Additions to a YAML file that keep its comments and its order."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from guard.core.errors import GuardError

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH: Final = 10_000
"""Columns of a line: texts are not folded."""


def merged_yaml(text: str, more: str, keys: Sequence[str], *, extends: bool = False) -> str:
    """Return a document with the lists of another one added to its own.

    Args:
        text: the document.
        more: document with the additions.
        keys: members of the document that are added, with the lists below them.
        extends: whether entries that both have are joined; the document's own stay as they are
            otherwise.

    Raises:
        GuardError: the document is not a mapping in YAML.
    """
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, _WIDTH
    yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        document, added = yaml.load(text), yaml.load(more)
        _add(document, {key: added[key] for key in keys if key in added}, extends=extends)
    except (YAMLError, TypeError, AttributeError) as error:
        raise GuardError(f"the file cannot be added to: {error}"[:200]) from error
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _add(document: Any, added: Any, *, extends: bool) -> None:
    for key, value in added.items():
        if document.get(key) is None:
            document[key] = value
        elif isinstance(value, list):
            for one in value:
                same = next((own for own in document[key] if _name(own) == _name(one)), None)
                if same is None:
                    document[key].append(one)
                elif extends and isinstance(one, dict):
                    _add(same, one, extends=True)
        elif isinstance(value, dict):
            _add(document[key], value, extends=extends)


def _name(entry: Any) -> object:
    """Return the upstream, name or id of an entry of a list, the entry itself if it has none."""
    names = ("upstream", "name", "id") if isinstance(entry, dict) else ()
    return next((entry[name] for name in names if name in entry), entry)
