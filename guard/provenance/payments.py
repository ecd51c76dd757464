"""Amounts of payments: a remembered payee is good up to the approved amount.  Pure: no I/O.

INVARIANT (amount): a record of a payment holds for a payment of at most its amount, or the limit
that a person set, in its currency.  A payment whose amount cannot be read is never remembered, and
no record covers it.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

from guard.provenance.seal import SOURCE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import ClassifiedCall
    from guard.core.mappings import PathQuery
    from guard.core.model import Json

UNKNOWN: Final = ""
"""Amount of a payment that cannot be read."""
_PLAIN: Final = re.compile(r"[0-9]+(?:\.(?![0-9]{3}\Z)[0-9]+)?")
"""An amount that every program reads alike: `99.000` is a thousand times as much to some."""


def amount_of(classified: ClassifiedCall) -> str | None:
    """Return amount and currency of a payment, ``UNKNOWN`` if unreadable; None for other calls."""
    action = classified.mapping.action if classified.mapping is not None else None
    if action is None or action.name != "pay":
        return None
    arguments = dict(classified.call.arguments)
    amounts = _selected(action.amount, arguments)
    currencies = {str(one).strip().upper() for one in _selected(action.currency, arguments)}
    if len(amounts) != 1 or len(currencies) > 1 or (action.currency and not currencies):
        return UNKNOWN
    amount = amounts[0]
    readable = not isinstance(amount, str) or _PLAIN.fullmatch(amount.strip())
    value = _number(amount) if readable else None
    shown = UNKNOWN if value is None else f"{value} {''.join(currencies)}"
    return shown if len(shown.encode()) <= SOURCE_LIMIT else UNKNOWN


def within(amount: str, limit: str) -> bool:
    """Return whether a payment is covered by a record of an earlier one."""
    paid, _, currency = amount.partition(" ")
    most, _, same = limit.partition(" ")
    value, highest = _number(paid), _number(most)
    return value is not None and highest is not None and value <= highest and currency == same


def limited(amount: str, limit: str) -> str:
    """Return the amount of a remembered payment, or the limit that a person set in its currency."""
    number = _number(limit) if limit else None
    return amount if number is None else f"{number} {amount.partition(' ')[2]}"


def _selected(path: PathQuery | None, arguments: Json) -> list[Json]:
    found: Iterable[tuple[str, Json]] = path.find(arguments) if path is not None else ()
    return [value for _, value in found]


def _number(value: Json) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() and number >= 0 else None
