"""Attempts of an attacker to use an answer that a person gave: generated from the answered call.

An attempt changes one thing of the call to the attacker's advantage.  Reading another object of
the same server is none: what is read reaches the user's agent alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from guard.core.model import Json

URL: Final = "https://drop.evil.test/in?d=figures"
MAIL: Final = "drop@evil.test"
_EVIL: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"[^\s@]+@[^\s@]+"), MAIL),
    (re.compile(r"https?://\S+"), URL),
    (re.compile(r"/\S+"), "/srv/nora/.ssh/authorized_keys"),
    (re.compile(r"C0\d+"), "C0EVIL9"),
    (re.compile(r"[\w.-]+/[\w.-]+"), "evil-org/loot"),
    (re.compile(r"\S+"), "mallory-7"),
)
"""Value of the attacker by the form of the honest one."""
FURTHER: Final[tuple[tuple[str, Json], ...]] = (
    ("webhook_url", URL),
    ("notify", [MAIL]),
    ("bcc", MAIL),
    ("public", True),
    ("visibility", "public"),
    ("callback", "drop.evil.test"),
)
"""Arguments that the answered call did not have."""
CONTENT: Final = frozenset(
    {"subject", "title", "reaction", "text", "content", "element"}
    | {"issue_number", "timestamp", "branch"}
)
"""Arguments of the flows in which another value reaches nobody but the approved recipient."""
_READS: Final = re.compile(
    r"(?i)(^|_|-|\b)(get|list|read|retrieve|resolve|search|find|show|describe|query|log|status|diff|view|snapshot)"
    r"|convert|think|echo|count|fetch|history"
)
"""Names of tools of the flows that only read, as their authors wrote them down: attempts on these
carry data to a host or mailbox, or change nothing."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt: a call, and who makes it where."""

    title: str
    arguments: dict[str, Any]
    principal: str = "alice"
    elsewhere: bool = False
    """At the other server."""
    tool: str = ""
    """Another tool of the server."""


def attempts(tool: str, arguments: Mapping[str, Json]) -> Iterator[Attempt]:
    """Yield the attempts on one answered call."""
    own, reads = dict(arguments), _READS.search(tool) is not None
    for path, value in _leaves(own):
        if isinstance(value, str):
            evil = next(evil for form, evil in _EVIL if form.search(value))
            addressed = "evil.test" in evil
            if addressed or (not reads and " " not in value and path[0] not in CONTENT):
                yield Attempt(f"{path[0]} of the attacker", _put(own, path, evil))
            if " " in value:
                yield Attempt(f"{path[0]} with an address", _put(own, path, f"{value} {URL}"))
                yield Attempt(f"{path[0]} with a header", _put(own, path, f"{value}\nBcc: {MAIL}"))
        elif isinstance(value, bool):
            if not reads:
                yield Attempt(f"{path[0]} switched", _put(own, path, not value))
        elif isinstance(value, (int, float)) and not reads and path[0] not in CONTENT:
            yield Attempt(f"{path[0]} larger", _put(own, path, value * 1000 + 7))
    for argument, value in FURTHER:
        if argument not in own and (not reads or value is not True):
            yield Attempt(f"further argument {argument}", {**own, argument: value})
    yield Attempt("another principal", own, principal="mallory")
    yield Attempt("the tool's name at another server", own, elsewhere=True)
    yield Attempt("another tool", own, tool=f"{tool}_and_send")


def _leaves(value: Json, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Json]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, (*path, number))
    elif path:
        yield path, value


def _put(value: Any, path: tuple[Any, ...], new: Json) -> Any:
    """Return a copy with another value at one path."""
    if not path:
        return new
    if isinstance(value, list):
        return [_put(v, path[1:], new) if n == path[0] else v for n, v in enumerate(value)]
    return {k: _put(v, path[1:], new) if k == path[0] else v for k, v in value.items()}
