"""What a sentence, or it and the next, speaks of together.  Pure: no I/O.

A phrase is told by its words in their order and is missed when it is said in other words.  A frame
is a set of classes (what is moved, who is spoken to, where it goes), each a wide vocabulary, that
stand close together in whatever order.
"""

from __future__ import annotations

import re
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import re2

from guard.content.prefilter import is_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

SENTENCES: Final = 400
"""Sentences of a text that are read, of those that have a word of a class."""
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|\n+")


class Frames:
    """Frames over classes of words.

    Args:
        classes: RE2 expression by class; case does not matter.
        frames: the classes that are told together, the rarest first: most texts have none of it,
            and are asked about nothing else.
    """

    def __init__(self, classes: Mapping[str, str], frames: Iterable[Sequence[str]]) -> None:
        self._sources = classes
        self._frames: dict[str, list[frozenset[str]]] = {}
        for first, *others in frames:
            self._frames.setdefault(first, []).append(frozenset((first, *others)))

    @cached_property
    def _classes(self) -> dict[str, re2._Regexp]:
        """The expressions, made when they are first asked for: many guards never do."""
        return {of: re2.compile(f"(?is){source}") for of, source in self._sources.items()}

    def found(self, text: str) -> Iterator[frozenset[str]]:
        """Yield each frame of which all classes stand in one sentence or in two that follow."""
        rare = [of for of in self._frames if is_in(self._classes[of], text)]
        if not rare:
            return
        asked = frozenset[str]().union(*(frame for of in rare for frame in self._frames[of]))
        spoken = {
            of: form for of, form in self._classes.items() if of in asked and is_in(form, text)
        }
        frames = [frame for of in rare for frame in self._frames[of] if frame <= spoken.keys()]
        if not frames:
            return
        sentences = _SENTENCE.split(text)
        if len(sentences) > SENTENCES:
            sentences = _near(sentences, [spoken[of] for of in frozenset[str]().union(*frames)])
        classes = [{of for of, form in spoken.items() if is_in(form, one)} for one in sentences]
        pairs = [first | second for first, second in pairwise([*classes, set[str]()])]
        yield from (frame for frame in frames if any(frame <= pair for pair in pairs))


def _near(sentences: Sequence[str], forms: Collection[re2._Regexp]) -> list[str]:
    """Return the sentences, as many as are read, that have something of a class."""
    telling = [one for one in sentences if any(is_in(form, one) for form in forms)]
    return telling[:SENTENCES]
