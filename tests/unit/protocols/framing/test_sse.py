"""Events are cut where the standard says, and no byte is changed."""

import pytest

from guard.core.errors import OversizeError
from guard.protocols.framing.sse import EventCutter, read_event


def test_a_byte_order_mark_is_no_text_where_the_stream_begins_and_nowhere_else():
    """The standard decodes the stream once; later the mark makes another field's name."""
    marked = "\ufeffdata: x\n\n".encode()

    assert read_event(marked, first=True) == ("message", "x")
    assert read_event(marked) == ("message", "")


def test_an_event_without_end_is_not_kept_for_ever():
    """An event beyond the limit ends the stream."""
    cutter = EventCutter(100)

    with pytest.raises(OversizeError):
        cutter.feed(b"data: " + b"x" * 200)
