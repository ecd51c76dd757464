"""The rule type ``deny_loop``."""

import pytest


@pytest.mark.parametrize(
    ("scope", "rows", "applies"),
    [
        ("session", (2, 2), False),
        ("session", (2, 9), True),
        ("session", (3, 0), True),
        ("principal", (9, 2), False),
        ("principal", (0, 3), True),
        ("both", (2, 2), False),
        ("both", (0, 4), True),
    ],
)
def test_a_row_of_refusals_ends_the_loop(rule, situation, scope, rows, applies):
    """The rule speaks from so many refusals in a row on."""
    matched = rule("deny_loop", refusals=3, scope=scope).match(situation(refused_in_a_row=rows))

    assert (matched is not None) is applies
