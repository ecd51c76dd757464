"""Texts as rows of a matrix."""

import pytest

pytest.importorskip("sklearn")

from guard.content.steering_reader import Passage
from lab.steering.matrix import FeatureTable

TEXTS = {"first": ("b", "a"), "second": ("c", "a")}
"""What each text has, in an order that a set has in some process."""


@pytest.mark.parametrize("turned", [1, -1])
def test_the_order_in_which_a_set_has_them_numbers_no_feature(turned):
    """It is another in each process, and sums of floating-point numbers depend on theirs."""
    table = FeatureTable(lambda one: dict.fromkeys(TEXTS[one.said[0]][::turned]))

    matrix = table.matrix(Passage((text,)) for text in TEXTS)

    assert matrix.toarray().tolist() == [[1, 1, 0], [1, 0, 1]]
    assert table.row({"a": 0.5, "c": 2.0, "unknown": 1.0}).tolist() == [0.5, 0, 2]
    assert [name for name, _ in table.named(table.row({}))] == ["a", "b", "c"]
