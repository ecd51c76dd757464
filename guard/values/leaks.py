"""Search for secrets and account numbers in one text, in every reading.  Pure: no I/O."""

from __future__ import annotations

from guard.values.account_numbers import has_account
from guard.values.decoder import content_readings
from guard.values.secret_rules import content_rules


def has_leak(text: str) -> bool:
    """Return whether a reading of a text contains a secret or an account number."""
    readings = content_readings(text)
    return (
        not readings.complete
        or any(map(has_account, readings.texts))
        or any(True for _ in content_rules().spans("\n".join(readings.texts)))
    )
