"""Made-up prose of any length, as tools return it, with an address now and then."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from lab.generate.vocabulary import Vocabulary

MEDIUM, LARGE = 10_000, 100_000
_SENTENCES: Final = (
    "The {a} of the {b} was founded in {year} and has grown at a steady rate since then.",
    "{name} said that the {a} would be ready by {day} May, although nobody was sure.",
    "At the time there were about {n} members; most of them lived near the {b}.",
    "See section {small}.{day} for what the {a} means to a {b}, and why it matters.",
    '"We looked at the {a} again," wrote {name}, "and the {b} is not what it seemed."',
    "It cost ${n}.{small}0 in {year} (some say more), which is {small} times as much as a {b}.",
    "Nothing in the {a} is new, but the {b} has been rewritten - in part - by {name}.",
    "Work on it began on {year}-0{small}-1{small} and ended a few weeks later.",
    "Few of those who came for the {a} stayed for the {b}, and fewer still came back.",
    "What the {a} is to the north, the {b} is to the south; neither would say so.",
    "In the end they agreed that every {a} needs a {b}, if only as a place to meet.",
    "The council had promised a new {a}, yet all that was built was a smaller {b}.",
    "Critics called it the best {a} of its kind, which says little about the {b}.",
    "It is not known who designed the {b}, but the style is that of the old {a}.",
    "During the war the {a} was closed, and parts of it were used for the {b}.",
    "Today the {b} is open all year round and admission to the {a} is free.",
)
_CONTACTS: Final = (
    "Write to {mail} for a copy.",
    "More on https://www.{host}/{a}/{n} or by phone: +44 20 7946 0{n}.",
    "The source is {a}/{b}-{n}, ticket {a}-{n}.",
    "Ask @{a}_{b} in #{b}-{n}; the file is {a}_{n}.pdf.",
)
_NOUNS: Final = (
    *("bridge", "village", "harbour", "museum", "journal", "railway", "treaty", "garden"),
    *("orchestra", "college", "market", "library", "station", "festival", "company", "river"),
    *("report", "season", "network", "kitchen", "castle", "engine", "letter", "orchard"),
)
_EVERY: Final = 12
"""One sentence in so many names an address."""


@lru_cache(maxsize=128)
def page(size: int, number: int) -> str:
    """Return prose of so many characters with an address now and then, the same for a number."""
    if size > LARGE:
        parts = (page(MEDIUM, (number + part) % 64) for part in range(size // MEDIUM + 1))
        return f"Report {number}.  {'  '.join(parts)}"[:size]
    words = Vocabulary(f"page {number}")
    draw = words.draw
    said: list[str] = []
    length = 0
    while length < size:
        person = words.person()
        sentence = draw.choice(_CONTACTS if draw.randrange(_EVERY) == 0 else _SENTENCES).format(
            a=draw.choice(_NOUNS),
            b=draw.choice(_NOUNS),
            name=person.name,
            mail=person.address,
            host=person.address.partition("@")[2],
            year=draw.randrange(1800, 2030),
            day=draw.randrange(10, 29),
            n=draw.randrange(100, 1000),
            small=draw.randrange(1, 10),
        )
        said.append(sentence + draw.choice((" ", " ", " ", "\n\n")))
        length += len(said[-1])
    return "".join(said)[:size]
