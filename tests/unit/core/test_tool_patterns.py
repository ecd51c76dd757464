"""Globs and expressions over tool names, and what one pattern says about another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core.tool_patterns import ToolPattern, any_pattern

GLOBS = st.text("ab*?", min_size=1, max_size=6)
NAMES = st.text("abc", max_size=6)


@pytest.mark.parametrize(
    ("pattern", "name", "claims"),
    [
        ("mail_send", "mail_send", True),
        ("mail_send", "Mail_send", False),
        ("mail_send", "mail_send2", False),
        ("*_send", "x_send", True),
        ("*_send", "_send\n", False),
        ("mail.*", "mailbox", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("*", "", True),
        ("*", "line\nbreak", True),
        ({"re2": "^mail_[a-z]+$"}, "mail_send", True),
        ({"re2": "^mail_[a-z]+$"}, "mail_send\n", False),
        ({"re2": "mail"}, "mail_send", False),
    ],
)
def test_a_pattern_claims_whole_names_only(pattern, name, claims):
    """Globs and expressions are anchored at both ends and case-sensitive."""
    assert bool(ToolPattern.parse(pattern).matches(name)) is claims


@pytest.mark.parametrize(
    "source", ["", "a[b]", 5, None, ["a"], {}, {"re2": 1}, {"re": "a"}, {"re2": "(?=a)"}, "a" * 201]
)
def test_what_is_no_pattern_is_refused(source):
    """Every other shape is a ValueError, and so is an expression that needs backtracking."""
    with pytest.raises(ValueError, match=r"pattern|glob|RE2"):
        ToolPattern.parse(source)


@given(wide=GLOBS, narrow=GLOBS, name=NAMES)
def test_a_covering_glob_claims_every_name_of_the_covered_one(wide, narrow, name):
    """``covers`` never says yes wrongly."""
    wide, narrow = ToolPattern.parse(wide), ToolPattern.parse(narrow)
    if wide.covers(narrow) and narrow.matches(name):
        assert wide.matches(name)


@given(left=GLOBS, right=GLOBS, name=NAMES)
def test_globs_that_share_a_name_overlap(left, right, name):
    """``overlaps`` never says no wrongly, and does not depend on the order."""
    left, right = ToolPattern.parse(left), ToolPattern.parse(right)
    if left.matches(name) and right.matches(name):
        assert left.overlaps(right)
    assert left.overlaps(right) == right.overlaps(left)


REGEX = {"re2": "mail_.*"}


@pytest.mark.parametrize(
    ("one", "other", "covers", "overlaps"),
    [
        ("mail_*", "memory_*", False, False),
        ("*_send", "*_read", False, False),
        ("a?", "a", False, False),
        ("a*c", "a?b", False, False),
        ("mail_*", "mail_s*d", True, True),
        ("mail_s*d", "mail_*", False, True),
        (REGEX, REGEX, True, True),
        (REGEX, "mail_*", False, True),
        ("mail_*", REGEX, False, True),
        ("mail_send", REGEX, False, True),
    ],
)
def test_patterns_cover_and_meet_where_it_can_be_told(one, other, covers, overlaps):
    """An expression covers itself only, and may meet every pattern."""
    one, other = ToolPattern.parse(one), ToolPattern.parse(other)
    assert (one.covers(other), one.overlaps(other)) == (covers, overlaps)


@pytest.mark.parametrize(
    ("patterns", "name", "claimed"),
    [
        (["mail_send"], "mail_send", True),
        (["mail_send"], "mail_x", False),
        (["mail_send", "mail_*"], "mail_x", True),
        (["mail_send", "mail_*"], "x", False),
    ],
)
def test_any_pattern_claims(patterns, name, claimed):
    """Literals and others alike."""
    assert any_pattern([*map(ToolPattern.parse, patterns)])(name) is claimed


@pytest.mark.parametrize("source", ["mail_*", {"re2": "a+"}])
def test_a_pattern_is_read_back_from_its_source(source):
    """``source`` is what a policy would write."""
    assert ToolPattern.parse(ToolPattern.parse(source).source) == ToolPattern.parse(source)
