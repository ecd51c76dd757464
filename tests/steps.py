"""Counts the lines that run, to tell linear work from quadratic without a clock."""

import sys


def lines_run(work):
    """Return how many lines of Python run while some work is done."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
