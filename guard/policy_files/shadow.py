"""Whether a deny entry makes an allow entry useless, asked of the matcher itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.destinations.canonical import PatternSet, parse_pattern, read_destinations

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.core.model import Destination

PROBE: Final = "guard-probe"


def shadowing_pattern(text: str, denied: Sequence[str]) -> str | None:
    """Return the first deny entry that matches all that an entry matches, as far as probes tell.

    The probes are destinations that the entry matches, of every form it can match; an entry that
    no probe fits is compared by its text.
    """
    matches = PatternSet((parse_pattern(text),))
    probes = [probe for probe in _probes(text) if matches(probe)]
    for candidate in denied:
        if candidate == text:
            return candidate
        denies = PatternSet((parse_pattern(candidate),))
        if probes and all(denies(probe) for probe in probes):
            return candidate
    return None


def _probes(text: str) -> Iterator[Destination]:
    bare = text.removeprefix("*.")
    hosts = (bare, f"{PROBE}.{bare}")
    texts = [text, text + PROBE, text.removeprefix("handle:"), text.split("/", maxsplit=1)[0]]
    for host in hosts:
        texts += [host, f"{PROBE}@{host}", f"https://{host}/{PROBE}"]
    for probe in texts:
        for destination in read_destinations(probe):
            if destination.kind not in {"malformed", "missing"}:
                yield destination
