"""One budget of work per message, spent by every pass that reads it.  Pure: no I/O.

A unit is about one character that a reader looks through.  Units are counted, never measured by a
clock: a message is refused or not, whatever else the machine does.  The passes of one message share
a budget through :func:`within`; without one, :func:`spend` does nothing.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guard.core.model import Json

LIMIT: Final = 8 * 1024 * 1024
"""Units of one message."""
CODE: Final = "work_exceeded"
"""Reason code of a message that needs more."""
STRING: Final = 256
"""Units of a string that is decoded, besides its characters."""
TARGET: Final = 512
"""Units of a destination that is found."""
_SCALAR: Final = 8
_ITEM: Final = 64
_OBJECT: Final = 128
"""Units of a number, of a string or list, and of an object in the structure of a message."""


class WorkExceededError(MessageError):
    """A message that needs more work than one message may."""

    def __init__(self) -> None:
        super().__init__(
            CODE, f"reading the message takes more than {LIMIT} units of work", status=413
        )


class WorkBudget:
    """The units that the passes of one message may still spend.

    Args:
        left: the units; None: any number, which are only counted.
    """

    __slots__ = ("_limit", "spent")

    def __init__(self, left: int | None = LIMIT) -> None:
        self._limit = left
        self.spent = 0
        """Units that were spent."""

    @property
    def left(self) -> int | None:
        """Units that are left; None: any number."""
        return None if self._limit is None else self._limit - self.spent

    def spend(self, units: int) -> None:
        """Take units.

        Raises:
            WorkExceededError: there are not as many left.
        """
        self.spent += units
        if self._limit is not None and self.spent > self._limit:
            raise WorkExceededError


CURRENT_BUDGET: Final[ContextVar[WorkBudget | None]] = ContextVar("budget", default=None)
"""The budget of the message that is read; None while none is counted."""


@contextmanager
def within(budget: WorkBudget) -> Iterator[WorkBudget]:
    """Let every reader that is called meanwhile spend from a budget."""
    token = CURRENT_BUDGET.set(budget)
    try:
        yield budget
    finally:
        CURRENT_BUDGET.reset(token)


def spend(units: int) -> None:
    """Take units from the budget of the message that is read, where there is one.

    Raises:
        WorkExceededError: there are not as many left.
    """
    budget = CURRENT_BUDGET.get()
    if budget is not None:
        budget.spend(units)


def spend_structure(value: Json) -> None:
    """Take the units of every value inside a JSON value.

    Raises:
        WorkExceededError: there are not as many left.
    """
    budget = CURRENT_BUDGET.get()
    stack: list[Json] = [value] if budget is not None else []
    while stack and budget is not None:
        item = stack.pop()
        if isinstance(item, dict):
            budget.spend(_OBJECT)
            stack += item.values()
        elif isinstance(item, list):
            budget.spend(_ITEM)
            stack += item
        else:
            budget.spend(_ITEM if isinstance(item, str) else _SCALAR)


_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_PIECE: Final = 64 * 1024
"""Bytes that are counted at once: a thread can hand over the interpreter between two pieces."""
_STARTS: Final = re.compile(rb"[ \t\r\n]*[\[{]")


def is_json(body: bytes) -> bool:
    """Return whether a text begins like a JSON object or list."""
    return _STARTS.match(body) is not None


def may_exceed(body: bytes) -> bool:
    """Return whether :func:`measure` has to look at a text, cheaply.

    Every value stands behind a comma, a colon or a bracket, in a string or not.
    """
    if not is_json(body):
        return False
    units = 0
    for start in range(0, len(body), _PIECE):
        piece = body[start : start + _PIECE]
        values = piece.count(b",") + 2 * (piece.count(b":") + piece.count(b"["))
        units += (_SCALAR + _ITEM) * values + _OBJECT * piece.count(b"{")
        if units > LIMIT // 2:
            return True
    return False


def measure(body: bytes) -> None:
    """Refuse a JSON text whose structure costs more than one message may, without parsing it.

    Raises:
        WorkExceededError: it costs more.
    """
    bare, strings = _STRINGS.subn(b"", body)
    units = _ITEM * (strings + bare.count(b"[")) + _OBJECT * bare.count(b"{")
    WorkBudget().spend(units + _SCALAR * bare.count(b","))
