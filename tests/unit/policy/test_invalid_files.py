"""One broken file per defect: each is refused at the exact line, with the rule's id and a hint."""

from pathlib import Path

import pytest

from guard.core.errors import PolicyError
from guard.policy import load_policies

INVALID = Path(__file__).parent / "invalid"


@pytest.mark.parametrize("path", sorted(INVALID.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_broken_file_is_refused_at_its_line_and_rule(path):
    """The first line of each file says which line, rule and words the one problem must have."""
    head = path.read_text(encoding="utf-8").splitlines()[0]
    _, _, line, rule, words = head.split(" ", maxsplit=4)

    with pytest.raises(PolicyError) as caught:
        load_policies([path])

    found = [(p.path, p.line, p.rule) for p in caught.value.problems]
    assert found == [(str(path), int(line), None if rule == "-" else rule.replace("%", " "))]
    assert words in caught.value.problems[0].message
