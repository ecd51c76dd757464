"""Exit codes of commands, and the one line of an error."""

from __future__ import annotations

import os
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

from guard.core.errors import GuardError, InputError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Code(IntEnum):
    """Meaning of an exit code."""

    OK = 0
    FAILED = 1
    REFUSED = 2
    """Blocked, or a test failed."""
    INVALID = 3
    """A policy, or what else the operator gave, cannot be used."""


def exit_code(error: Exception) -> Code:
    """Return the exit code of a command that an error ended."""
    return Code.INVALID if isinstance(error, InputError) else Code.FAILED


def message(error: Exception, command: str) -> str:
    """Return the line for standard error, safe to print.

    Args:
        error: what ended the command.
        command: which command that was; not named where the text begins with a file's position.
    """
    if isinstance(error, PolicyError):
        count = len(error.problems)
        text = f"{error}\n{count} problem{'' if count == 1 else 's'}"
    else:
        text = f"{command}: {error_text(error)}"
    return "\n".join(plain(line) for line in text.split("\n"))


@contextmanager
def given_input() -> Iterator[None]:
    """Mark work on what the operator gave: whatever fails in here makes it invalid.

    Raises:
        InputError: in place of any other error that says so.
    """
    try:
        yield
    except InputError:
        raise
    except (GuardError, OSError, ValueError) as error:
        raise InputError(error_text(error)) from error


def error_text(error: Exception) -> str:
    """Return an error in words; of the system's own, the file and what is wrong with it."""
    if isinstance(error, OSError) and isinstance(error.filename, (str, bytes)):
        return f"`{os.fsdecode(error.filename)}`: {(error.strerror or 'error').lower()}"
    return str(error)


def plain(text: str) -> str:
    """Return a text of others with everything escaped that could move the cursor or hide text."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
