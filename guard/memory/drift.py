"""A sequential test on what a principal's committed items say.  Pure: no I/O.

Each item may be harmless, and ten of them together push a vendor.  For every subject (a name, a
domain) that items *endorse*, a one-sided CUSUM of the log-likelihood ratio of two rates is kept:
how often an ordinary principal's items endorse one subject (``base_rate``), and how often a pushed
one's do (``pushed_rate``).  Items that do not endorse the subject take evidence away, never below
zero, so nobody can earn credit in advance.  State is bounded; what falls out is what has least
evidence.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.values.finding import find_destinations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from guard.core.mappings import DriftSettings

SUBJECTS: Final = 64
"""Subjects with evidence that are kept for one principal."""
_ENDORSING: Final = re.compile(
    r"\b(recommend\w*|prefer\w*|suggest\w*|choos\w+|chose|favou?r\w*|best|better|leading|superior|"
    r"reliable|trusted|go-to|first choice|default|standard|approved|use|using|works well|"
    r"satisf\w+|excellent|outperform\w*|fastest|easiest|top|switch\w*|should go)\b",
    re.IGNORECASE,
)
_NAME: Final = re.compile(r"\b(?:[A-Z][\w&.-]*[a-z0-9]|[A-Z]{2,})(?:\s+(?:[A-Z][\w&-]*|[0-9]+))*")
_PRAISED: Final = re.compile(
    r"(?:'s\s+\w+)?\s+(?:is|are|was|were|has|have|had|offers?|provides?|works?|worked|outperform\w*|handles?|"
    r"handled|remains?|should|can|makes?|gives?|delivers?|comes?|costs?|runs?|does|did|resolved|solved|"
    r"saved|earned|kept|keeps|closes?|scored|beat|beats)\b",
    re.IGNORECASE,
)
"""What follows a first word that the sentence is about, rather than one that acts."""
_SENTENCE: Final = re.compile(r"[.!?]\s+|\n+")
_COMMON: Final = re.compile(
    r"a|all|also|an|and|any|as|at|but|by|each|every|few|for|from|he|her|his|i|if|in|it|its|my|"
    r"no|not|of|on|or|our|she|some|that|the|their|then|there|these|they|this|those|to|use|using|we|what|when|which|while|who|you|your"
)


@dataclass(frozen=True, slots=True)
class DriftEvidence:
    """The evidence that one principal's items push a subject."""

    weight: float
    """Log-likelihood ratio, never below zero."""
    item: int
    """Number of the item at which it was last brought up to date."""


def endorsed(texts: Iterable[str]) -> frozenset[str]:
    """Return the subjects that an item endorses: names and domains beside endorsing words.

    Who recommends, prefers or uses something is not endorsed by doing so.
    """
    found: set[str] = set()
    for text in texts:
        for sentence in _SENTENCE.split(text):
            if not _ENDORSING.search(sentence):
                continue
            found.update(d.host or d.canonical for d in find_destinations(sentence))
            found.update(_names(sentence))
    return frozenset(found)


def _names(sentence: str) -> Iterable[str]:
    for match in _NAME.finditer(sentence):
        name = match[0].strip(" .-").casefold()
        acts = match.start() == 0 and not _PRAISED.match(sentence, match.end())
        if name and not _COMMON.fullmatch(name) and not acts:
            yield name


def steps(settings: DriftSettings) -> tuple[float, float]:
    """Return what an endorsing item adds, and what any other takes away."""
    gain = math.log(settings.pushed_rate / settings.base_rate)
    return gain, math.log((1 - settings.base_rate) / (1 - settings.pushed_rate))


def update(
    state: Mapping[str, DriftEvidence],
    number: int,
    subjects: frozenset[str],
    settings: DriftSettings,
) -> dict[str, DriftEvidence]:
    """Return the evidence after one more committed item.

    Args:
        state: evidence by subject so far.
        number: of the item, counted from one for each principal.
        subjects: what the item endorses.
        settings: the two rates.
    """
    gain, loss = steps(settings)
    fresh: dict[str, DriftEvidence] = {}
    for subject in state.keys() | subjects:
        before = state.get(subject, DriftEvidence(0.0, number - 1))
        endorses = subject in subjects
        passed = number - before.item - (1 if endorses else 0)
        weight = max(before.weight - loss * passed, 0.0) + (gain if endorses else 0.0)
        if weight > 0:
            fresh[subject] = DriftEvidence(weight, number)
    kept = sorted(fresh, key=lambda subject: -fresh[subject].weight)[:SUBJECTS]
    return {subject: fresh[subject] for subject in kept}


def alarms(state: Mapping[str, DriftEvidence], settings: DriftSettings) -> tuple[str, ...]:
    """Return the subjects whose evidence reaches the alarm, strongest first."""
    hit = [subject for subject, evidence in state.items() if evidence.weight >= settings.alarm]
    return tuple(sorted(hit, key=lambda subject: -state[subject].weight))
