"""Numbers that an amount may be, in one comparable form.  Pure: no I/O."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Final

TEXT_LIMIT: Final = 128 * 1024
"""Characters of one text that are looked through."""
NUMBER_LIMIT: Final = 300
"""Numbers taken from one text."""
NUMBER_DIGITS: Final = 24

_AMOUNT: Final = re.compile(r"\d(?<![\w.,-]\d)[\d,]{0,15}(?:\.\d{1,8})?(?![\w-])")
_MONEY: Final = re.compile(
    r"(?:[A-Z]{3}\s?|[$\u20ac\u00a3]\s?)?(-?(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,24})(?:\.\d{1,12})?)"
    r"(?:\s?[A-Z]{3}|\s?[$\u20ac\u00a3])?"
)


def number_value(text: str) -> str | None:
    """Return the value of a number, the same for ``10``, ``10.00`` and ``$10``; None for no number.

    Currencies and commas between thousands are how models write amounts.
    """
    money = _MONEY.fullmatch(text.strip())
    try:
        number = Decimal(money[1].replace(",", "") if money else text.strip())
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number.adjusted()) > NUMBER_DIGITS:
        return None
    return f"number:{number.normalize():f}"


def find_numbers(text: str) -> dict[str, None]:
    """Return the numbers in a text that are not too common to say where one came from."""
    found: dict[str, None] = {}
    for match in islice(_AMOUNT.finditer(text[:TEXT_LIMIT]), NUMBER_LIMIT):
        value = number_value(match[0].replace(",", ""))
        if value is not None and ("." in value or len(value) > len("number:9")):
            found[value] = None
    return found
