"""What an installation takes is counted over what it needs, and nothing else."""

from __future__ import annotations

from lab.installed import NAME, installed_sizes


def test_what_the_guard_needs_is_counted_and_what_extras_need_is_not() -> None:
    """Through what it needs itself, and without bytecode."""
    sizes = installed_sizes()

    assert sizes["mitmproxy"] > 1_000_000
    assert sizes["h11"] > 0
    assert sizes[NAME] > 1_000_000
    assert {"scikit-learn", "matplotlib", "pytest"}.isdisjoint(sizes)
