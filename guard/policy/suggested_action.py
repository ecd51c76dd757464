"""Suggested actions of tools, by annotation, HTTP method and name.  Pure: no I/O.

A suggestion is a comment for the author of a policy, or a warning; it decides no verdict.  Where
several actions fit, the one listed first is suggested.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.mappings import ActionName
    from guard.core.model import Json

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_NAMES: Final[tuple[tuple[ActionName, str], ...]] = (
    ("change_credential", "password passwd passphrase credential credentials secret mfa otp"),
    ("change_access", "permission permissions acl role roles grant access owner visibility"),
    ("pay", "pay payment transfer refund payout wire withdraw"),
    ("buy", "buy purchase order book reserve checkout subscribe"),
    ("delete", "delete remove erase purge drop destroy cancel revoke trash wipe clear unset"),
    ("execute", "run exec execute eval bash shell command script deploy restart start stop"),
    ("share", "share"),
    ("invite", "invite enroll onboard"),
    ("publish", "publish post push merge upload release tweet"),
    ("change_setting", "setting settings config configure enable disable toggle preference"),
    ("overwrite", "update write edit set put patch replace move rename modify append"),
    ("send", "send reply forward notify message"),
    ("schedule", "schedule reschedule event appointment reminder"),
    ("react", "react star like vote follow rate"),
)
"""Words of names by action, the gravest first."""
_READS: Final = frozenset(
    ["get", "list", "read", "search", "find", "show", "view", "describe", "count", "fetch"]
)
_METHODS: Final[Mapping[str, ActionName]] = {
    "DELETE": "delete",
    "PUT": "overwrite",
    "PATCH": "overwrite",
}
_MILD: Final = frozenset({None, "send", "schedule", "react"})
GRAVE: Final = frozenset({"change_credential", "pay", "buy", "delete"})
"""Actions whose names on a tool without an action deserve a warning."""


def suggested_action(
    name: str, annotations: Mapping[str, Json] | None = None, method: str = ""
) -> ActionName | None:
    """Return the likely action of a tool; None where nothing points to a change.

    ``readOnlyHint`` is the server's own word and hides no change that a name or method shows.
    """
    destroys = (annotations or {}).get("destructiveHint") is True
    words = [word.lower() for word in _WORD.findall(name)]
    found = next((action for action, its in _NAMES if not set(its.split()).isdisjoint(words)), None)
    reads = bool(words) and words[0] in _READS
    if reads:
        found = None
    found = found or _METHODS.get(method)
    return "delete" if destroys and found in _MILD else found
