"""Errand grants as values: leave for one recipient, bound to all that a person was shown."""

from __future__ import annotations

from dataclasses import dataclass

from guard.core.frozen import frozen
from guard.core.model import Destination


@dataclass(frozen=True, slots=True)
class ErrandGrant:
    """Leave to reach one recipient for the rest of an errand or session."""

    principal: str
    session: str
    errand: float
    """Time of the prompt; 0 for the whole session."""
    server: str
    upstream: str
    action: str
    kind: str
    recipient: str
    object: str
    """Object of the action that was shown."""
    private: tuple[str, ...]
    """Sources of the private text that was shown."""
    codes: tuple[str, ...]
    """Reason codes that the person answered."""
    policy: str
    """Digest of the policy in force."""
    at: float
    until: float
    by: str
    """Name of the person who gave it."""
    tool: str = ""
    """Tool of the call that was asked about; it binds nothing."""
    decision: str = ""
    """Decision id of that call."""
    used: float = 0.0
    """Time of its last use; kept beside it."""

    @property
    def destination(self) -> Destination:
        """The recipient."""
        return Destination(self.kind, self.recipient)


@frozen
class ErrandCall:
    """Errand of a call, and the grants that may cover it."""

    at: float = 0.0
    """Time of the prompt that began it; 0 where no prompt is known."""
    private: tuple[str, ...] = ()
    """Private sources of the call's text."""
    grants: tuple[ErrandGrant, ...] = ()
    """Grants that were found for its recipients."""
    used: tuple[ErrandGrant, ...] = ()
    """Grants that let it out."""
