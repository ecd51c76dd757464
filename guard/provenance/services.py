"""Services: in whose calls an account, a channel or another handle vouches.  Pure: no I/O.

A mailbox or URL is the same wherever it is named.  A handle is not: whoever names a channel of a
chat like a bank account has not named the account.  So a record of a handle has the marks of the
services that it was seen in, or that the policy names for it, and a call has those of its own.
INVARIANT (no service, no vouching): a record of a handle without marks vouches in no call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guard.core.labels import Channel
from guard.provenance.seal import ANY_SERVICE
from guard.values.finding import HANDLE, MESSAGE, is_phone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import ClassifiedCall
    from guard.core.labels import LabelRecord
    from guard.provenance.seal import Seal

OF_A_SERVICE: Final = (HANDLE, MESSAGE)
"""First parts of values that mean something in one service only."""
_NOWHERE: Final = (b"",)
_PHONE: Final = "phone"
_USERS_WORD: Final = frozenset({Channel.PROMPT, Channel.APPROVAL, Channel.SESSION_APPROVAL})


def service_marks(seal: Seal, classified: ClassifiedCall) -> tuple[bytes, ...]:
    """Return the marks by which the service of a call is known: its own, then those of its names.

    Args:
        seal: the deployment's key.
        classified: the call.
    """
    mapping = classified.mapping
    names = ("", "") if mapping is None else (mapping.server, mapping.service)
    return (seal.service(classified.place, *names), *(seal.service(n) for n in names if n))


def services_of(
    seal: Seal, value: str, own: bytes, serves: Iterable[str], kinds: frozenset[str]
) -> tuple[bytes, ...]:
    """Return the marks that the record of a value gets.

    Args:
        seal: the deployment's key.
        value: that a field holds.
        own: mark of the service that returned it.
        serves: further services that the policy names for the field.
        kinds: of destinations that the field vouches for.
    """
    if not value.startswith(OF_A_SERVICE):
        return ()
    if _PHONE in kinds and is_phone(value):
        return (ANY_SERVICE,)
    return (own, *map(seal.service, serves))


def bound(record: LabelRecord) -> LabelRecord:
    """Return the record of a handle: without marks of services it vouches nowhere.

    Whatever its user said is not a service's word.
    """
    if record.services or record.channel in _USERS_WORD:
        return record
    return replace(record, services=_NOWHERE)


def lasting_services(record: LabelRecord) -> tuple[bytes, ...]:
    """Return the services of a record that is saved: a user's word holds in all of them."""
    return (ANY_SERVICE,) if record.channel in _USERS_WORD else record.services
