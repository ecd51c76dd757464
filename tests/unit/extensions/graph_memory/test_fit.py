"""Parameters of a store's selector, found from its recorded answers."""

import json

import pytest

from guard.cli.graph_memory import fitted
from guard.core.errors import InputError
from guard.extensions.graph_memory.ledger import Change, Ledger, Write
from guard.extensions.graph_memory.selectors import discover_selectors, selector_from


@pytest.mark.parametrize("name", sorted(discover_selectors()))
def test_a_selector_takes_its_own_parameters_alone(name):
    """A parameter of another selector is an error, not ignored."""
    selector = discover_selectors()[name]
    for parameter, values in selector.parameters.items():
        for value in values:
            selector_from(name, {parameter: value})
    with pytest.raises(ValueError, match="is not a parameter"):
        selector_from(name, {"top": 1})


def test_answers_are_read_by_the_names_of_their_nodes():
    """An item that no write has named is an error with the number of its line."""
    ledger = Ledger(lambda _: True)
    records = [Write(Change.NODE, name, item=True) for name in ("one", "two")]
    ledger.extend(
        [*records, Write(Change.EDGE, "one", "harbour"), Write(Change.EDGE, "one", "two")]
    )
    answer = json.dumps({"query": "the harbour", "items": ["one", "two"]})
    best, *_ = fitted(ledger, [answer])
    assert best.fidelity == 1.0
    with pytest.raises(InputError, match="line 2"):
        fitted(ledger, [answer, json.dumps({"query": "harbour", "items": ["three"]})])
