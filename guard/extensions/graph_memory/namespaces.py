"""Namespaces of a store: what does not count is written apart, and left out of a second question.

Pure: no I/O.  For a store whose selection cannot be replayed: it is asked twice, with and without
the namespaces of whoever does not count (*dual query*).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.mappings import NamespaceMember, Namespaces
    from guard.core.model import Json

NAMES: Final = 16
"""Namespaces of one question."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,48}", re.ASCII)
"""A longer name, or one of other characters, a store might cut or fold, and its ending with it."""
_SEPARATORS: Final = re.compile(r"[._-]+")


class NamespaceError(GuardError):
    """A call cannot be kept to a namespace; the text says why."""


def writes(namespaces: Namespaces, tool: str) -> bool:
    """Return whether a tool writes the store."""
    return _of_tool(namespaces.writes, tool) is not None


def kept_apart(
    namespaces: Namespaces, tool: str, arguments: Mapping[str, Json]
) -> dict[str, Json] | None:
    """Return the arguments of a write that does not count, for an untrusted namespace.

    Returns:
        None where they are for one already.

    Raises:
        NamespaceError: no argument of the tool names one, or not a name that ends as it is written.
    """
    found = _of_tool(namespaces.writes, tool)
    if found is None or not found.member or found.many:
        raise NamespaceError("this tool names no namespace, so its writes cannot be kept apart")
    [name] = _names(namespaces, found, arguments)
    if name.endswith(namespaces.suffix):
        return None
    return {**arguments, found.member: name + namespaces.suffix}


def widened(
    namespaces: Namespaces, tool: str, arguments: Mapping[str, Json]
) -> dict[str, Json] | None:
    """Return the arguments of a read for the untrusted namespaces beside those that it names.

    Returns:
        None where nothing is to be changed: the tool reads one namespace at a time, or none.

    Raises:
        NamespaceError: the argument that names them is not a list of plain names.
    """
    found = _of_tool(namespaces.reads, tool)
    if found is None or not found.many:
        return None
    names = _names(namespaces, found, arguments)
    further = [name + namespaces.suffix for name in names if not name.endswith(namespaces.suffix)]
    both = list(dict.fromkeys([*names, *further]))
    return None if both == arguments.get(found.member) else {**arguments, found.member: both}


def narrowed(
    namespaces: Namespaces, tool: str, arguments: Mapping[str, Json]
) -> dict[str, Json] | None:
    """Return the arguments of the same question without untrusted namespaces.

    Returns:
        None where nothing is left to ask.

    Raises:
        NamespaceError: the argument that names them is neither a plain name nor a list of such.
    """
    found = _of_tool(namespaces.reads, tool)
    if found is None or not found.member:
        raise NamespaceError("this tool names no namespace")
    names = _names(namespaces, found, arguments)
    ending = _folded(namespaces.suffix)
    left = [name for name in names if not _folded(name).endswith(ending)]
    if not left or not found.many:
        return dict(arguments) if left else None
    return {**arguments, found.member: left}


def _folded(name: str) -> str:
    """Return a name as a store may read it that takes capitals or separators for one another."""
    return _SEPARATORS.sub("-", name.casefold()).rstrip("-")


def _of_tool(members: tuple[NamespaceMember, ...], tool: str) -> NamespaceMember | None:
    return next((one for one in members if one.matches(tool)), None)


def _names(
    namespaces: Namespaces, found: NamespaceMember, arguments: Mapping[str, Json]
) -> list[str]:
    """Return the namespaces that a call names: at least one, that of calls that name none."""
    given = arguments.get(found.member) or namespaces.default
    names = given if found.many and isinstance(given, list) else [given]
    if len(names) > NAMES:
        raise NamespaceError(f"`{found.member}` has more than {NAMES} namespaces")
    for name in names:
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise NamespaceError(f"`{found.member}` is no plain name of a namespace")
    return names
