"""A destination has few spellings: a choice at each of many signs would be a code to its host."""

import random
from collections import Counter, defaultdict

import pytest

from guard.values import canonical
from guard.values.canonical import read_destinations, read_receivers
from guard.values.finding import keys_of, link_values

PAGE = "https://drop.test/a-b_c.d/caf%C3%A9/x%3Ay/page-of-one-day"
SPELLINGS = 12
"""One blank at an end, one slash behind the path, and one way to escape for the whole URL."""


def escaped(rng, sign):
    """Return a sign, or one of its escapes."""
    return rng.choice([sign, f"%{ord(sign):02X}", f"%{ord(sign):02x}"])


def signs(rng):
    """Return the path of the page, some signs escaped."""
    return "".join(escaped(rng, s) if s in "-_.o" else s for s in PAGE.partition("test")[2])


CODES = {
    "needless escapes": lambda rng: f"https://drop.test{signs(rng)}",
    "case of escapes": lambda rng: (
        "https://drop.test/" + "".join(rng.choice(["%C3%A9", "%c3%a9"]) for _ in range(8))
    ),
    "some of a word escaped": lambda rng: (
        "https://drop.test/" + "".join(rng.choice(["\u00e9", "%C3%A9"]) for _ in range(8))
    ),
    "slashes": lambda rng: PAGE.replace("/a-b", rng.randint(1, 200) * "/" + "a-b"),
    "last slashes": lambda rng: PAGE + rng.randint(0, 200) * "/",
    "slashes of a query": lambda rng: f"{PAGE}?q={rng.randint(0, 200) * '/'}",
    "blanks behind": lambda rng: PAGE + "".join(rng.choices(" \t", k=9)),
    "blanks before": lambda rng: "".join(rng.choices(" \t\n", k=9)) + PAGE,
    "separators": lambda rng: PAGE + " " + "".join(rng.choices(" ,;\n", k=9)) + ",",
    "repetition": lambda rng: ", ".join([PAGE] * rng.randint(1, 200)),
    "separators of a list": lambda rng: (
        PAGE + "".join(f"{rng.choice([', ', '; '])}https://x.test/{n}" for n in range(9))
    ),
}


def most_alike(code, scheme, seed=""):
    """Return how many of the texts that a code makes are the same destinations, at most."""
    rng = random.Random(code + seed)
    texts = {CODES[code](rng).replace("https://", scheme) for _ in range(400)}
    read = [
        found for found in map(read_receivers, texts) if {"url", "host"} >= {d.kind for d in found}
    ]
    alike = Counter(tuple(keys_of(one)[0] for one in found) for found in read)
    assert len(texts) > SPELLINGS
    return max(alike.values(), default=0)


@pytest.mark.parametrize("scheme", ["https://", ""])
@pytest.mark.parametrize("code", CODES)
def test_no_spelling_is_a_code(code, scheme):
    """Of many texts that a code makes, hardly any two are the same destinations."""
    assert most_alike(code, scheme) <= SPELLINGS


@pytest.mark.parametrize(
    ("rule", "off", "code"),
    [
        ("_is_odd", lambda _: False, "needless escapes"),
        ("_is_odd", lambda _: False, "case of escapes"),
        ("_is_plain_list", lambda _: True, "blanks behind"),
        ("_is_plain_list", lambda _: True, "separators"),
    ],
)
def test_with_its_rule_switched_off_a_spelling_is_a_code(monkeypatch, rule, off, code):
    """The digest of odd escapes, and the one text of a list, are needed."""
    monkeypatch.setattr(canonical, rule, off)
    assert most_alike(code, "https://", "off") > SPELLINGS


@pytest.mark.parametrize("prefix", ["https://h.test", "h.test"])
def test_a_key_has_one_canonical_form(prefix):
    """Canonical forms read as themselves, and differ under one key by one last slash at most."""
    rng, forms = random.Random(prefix), defaultdict(set)
    pieces = ["/", "/", "a", "b", "?", "q=1", "#", "..", "%2f", "%41", "&", "~"]
    for _ in range(4000):
        text = prefix + rng.choice("/?") + "".join(rng.choices(pieces, k=rng.randint(0, 6)))
        places = (one for one in read_destinations(text) if one.kind in {"url", "host"})
        for found in places:
            (again,) = read_destinations(found.canonical)
            assert again.canonical == found.canonical
            forms[keys_of(found)[0]].add(found.canonical)
            forms[link_values(found)[0]].add(found.canonical)
    for same in forms.values():
        short = min(same, key=len)
        assert same <= {short, f"{short}/"}
