"""What the policy says of the tools that one pattern claims.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from guard.core.model import Integrity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from guard.core.model import Json, Role
    from guard.core.tool_patterns import ToolPattern


class PathQuery(Protocol):
    """A compiled JSONPath (RFC 9535): the values it selects, with their normalised paths."""

    text: str

    def find(self, document: Json) -> Iterable[tuple[str, Json]]:
        """Yield the values it selects in a document."""
        ...


@dataclass(frozen=True, slots=True)
class FieldLabel:
    """A part of a result with a label of its own."""

    path: PathQuery
    label: Integrity


@dataclass(frozen=True, slots=True)
class MessageFields:
    """Where messages are in a result, and what a user may call each by."""

    each: PathQuery
    id: PathQuery
    sender: PathQuery
    names: tuple[PathQuery, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkFields:
    """Where in a result messages with links are, and by what a user may name their place."""

    each: PathQuery
    text: PathQuery
    sender: PathQuery
    place: PathQuery | None = None
    """In the arguments: the channel or the person whose messages are read."""


@dataclass(frozen=True, slots=True)
class ToolMapping:
    """What the policy says of the tools that one pattern claims."""

    pattern: str
    """The globs or expressions as written, for messages."""
    matches: Callable[[str], bool]
    role: Role
    destinations: tuple[PathQuery, ...] = ()
    body: tuple[PathQuery, ...] = ()
    ignore: tuple[PathQuery, ...] = ()
    """Arguments that are neither; what is declared nowhere is looked through for destinations."""
    source: Integrity = Integrity.UNTRUSTED
    """Label of what its results contain."""
    fields: tuple[FieldLabel, ...] = ()
    """Parts of its results that have a label of their own."""
    store: str = ""
    """Name of the memory it reads or writes, empty where it is none."""
    item: PathQuery | None = None
    """Where the arguments name the item of that memory."""
    guarded: tuple[PathQuery, ...] = ()
    """Arguments whose values are traced like destinations."""
    reply: PathQuery | None = None
    """Where the arguments name the message that is answered."""
    messages: MessageFields | None = None
    """Where in its results messages are."""
    private: bool = False
    """Whether what it returns must not go out to whom nobody vouches for."""
    links: LinkFields | None = None
    """Messages whose links count word for word where the user named their sender or place."""
    named_by: PathQuery | None = None
    """Where the arguments name the page that is read; one that the user named vouches for the
    addresses on it that bear its name."""
    may_be_nobody: bool = False
    """A send without a destination sends nothing (a calendar entry without guests)."""
    line: int = 0
    patterns: tuple[ToolPattern, ...] = ()
    """One by one what ``pattern`` and ``matches`` join."""

    def claimant(self, tool: str) -> str:
        """Return the one pattern, as written, that claims a tool this mapping claims."""
        for pattern in self.patterns:
            if pattern.matches(tool) is True:
                return pattern.text
        return self.pattern
