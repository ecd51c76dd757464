"""What was read of a text is remembered, and no client fills the process by it."""

import gc
import weakref

import pytest

from guard.core.bounded_cache import LONG_ONES, SHORT, bounded_cache


class Reading:
    """What reading a text gives; it can be watched."""

    def __init__(self, text, more=""):
        self.text = text + more


@pytest.fixture
def read():
    """Return a function of a text that remembers a thousand short ones."""
    return bounded_cache(1000)(Reading)


@pytest.mark.parametrize("text", ["", "short", "x" * (SHORT + 1)])
def test_a_text_is_read_once(read, text):
    """Short or long, what is asked again at once is not read again."""
    assert read(text) is read(text)
    assert read(text, more="!").text == text + "!"


def test_of_long_texts_only_the_last_few_are_kept(read):
    """However many come, a handful stays; short ones stay beside them."""
    short = weakref.ref(read("short"))
    kept = [weakref.ref(read(str(n) + "x" * SHORT)) for n in range(50)]
    gc.collect()

    assert sum(one() is not None for one in kept) == LONG_ONES
    assert short() is not None
