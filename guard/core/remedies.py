"""Remedies of a refusal as values: what an agent can do to get through."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING

from guard.core.frozen import frozen

if TYPE_CHECKING:
    from guard.core.model import Json


class RemedyKind(StrEnum):
    """Step that an agent can take, the one that needs nobody first."""

    USE = "use"
    """Use the value that the policy names."""
    LOOK_UP = "look_up"
    """Look the value up in a directory, and use the entry that the user named."""
    ASK_USER = "ask_user"
    """Ask the user; the typed answer on the prompt channel is an attestation."""
    AWAIT_APPROVAL = "await_approval"
    """Wait for the answer of a person, then repeat the same call."""
    NONE = "none"
    """Nothing helps."""


@frozen
class Remedy:
    """One step that would help after a refusal.  It has no value of the call."""

    kind: RemedyKind
    tool: str = ""
    """For ``look_up``: the directory tool."""
    argument: str = ""
    """Argument of the refused call that gets the value, as a JSONPath."""
    question: str = ""
    """For ``ask_user``: the question to show."""
    value: str = ""
    """For ``use``: the value that the policy names."""

    def document(self) -> dict[str, Json]:
        """Return the members that say something, as JSON values."""
        return {name: value for name, value in asdict(self).items() if value}


NO_REMEDY = (Remedy(RemedyKind.NONE),)
