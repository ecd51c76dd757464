"""Frequent work of mitmproxy in fewer steps, with the same outcome.

A request asks some 25 times for a header, which mitmproxy looks for in four layers of methods and,
where there is none, by an exception; and 17 times for an option, which is copied each time.  What
belongs to a request gets a server with an id of its own, which is thrown away at once.
"""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mitmproxy.hooks import Hook
from mitmproxy.http import Headers
from mitmproxy.proxy.context import Context

if TYPE_CHECKING:
    from mitmproxy.optmanager import OptManager

DefaultT = TypeVar("DefaultT")

READ_OFTEN: Final = (
    "body_size_limit",
    "connection_strategy",
    "keep_host_header",
    "stream_large_bodies",
    "validate_inbound_headers",
)
"""Options that each request asks for, and that do not change while the guard serves."""


def get_all(self: Headers, name: str | bytes) -> list[str]:
    """Return the values of a header."""
    wanted = _key(name)
    return [
        value.decode("utf-8", "surrogateescape")
        for key, value in self.fields
        if key.lower() == wanted
    ]


def get(self: Headers, key: str | bytes, default: DefaultT | None = None) -> str | DefaultT | None:
    """Return a header, folded where it occurs more than once."""
    values = get_all(self, key)
    return ", ".join(values) if values else default


def contains(self: Headers, key: object) -> bool:
    """Return whether there is a header of a name."""
    if not isinstance(key, str | bytes):
        return False
    wanted = _key(key)
    for name, _ in self.fields:
        if name.lower() == wanted:
            return True
    return False


def _key(name: str | bytes) -> bytes:
    if isinstance(name, str):
        name = name.encode("utf-8", "surrogateescape")
    return name.lower()


def branched(self: Context) -> Context:
    """Return a context of the same connections with layers of its own."""
    made = copy.copy(self)
    made.layers = self.layers.copy()
    return made


_FIELDS: Final[dict[type[Any], tuple[str, ...]]] = {}
"""Of each kind of hook that was called."""


def args(self: Hook) -> list[Any]:
    """Return what a hook's listeners are given: its fields."""
    kind = type(self)
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(field.name for field in fields(kind))  # type: ignore[arg-type]
    return [getattr(self, name) for name in _FIELDS[kind]]


def install() -> None:
    """Put them in the place of mitmproxy's."""
    Context.fork = branched  # type: ignore[method-assign]
    Hook.args = args  # type: ignore[method-assign]
    Headers.get_all = get_all  # type: ignore[method-assign]
    Headers.get = get  # type: ignore[method-assign,assignment]
    Headers.__contains__ = contains  # type: ignore[method-assign,assignment]


def settle(options: OptManager) -> None:
    """Make attributes of the options that are read often: what is one is looked up no further."""
    known: dict[str, Any] = vars(options)
    known.update({name: getattr(options, name) for name in READ_OFTEN})
