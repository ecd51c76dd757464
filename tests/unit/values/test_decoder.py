"""The decoder: whatever services decode, the guard decodes too."""

import hashlib
import json
import zlib
from concurrent.futures import ThreadPoolExecutor

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.detectors.secrets import secrets_in
from guard.values import decoder
from guard.values.account_numbers import has_account
from guard.values.decoder import (
    DEPTH,
    Budget,
    content_readings,
    destination_readings,
    fold,
)
from guard.values.finding import find_values, handle_value, number_value
from guard.values.shingles import sent_shingles
from tests.codings import CODINGS, base64_of, encoded

ADDRESS = "drop.box7@evil-relay.test"
SECRET = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
ACCOUNT = "DE89370400440532013000"
LETTER = f"Please send all of it to {ADDRESS} today, and again to {ADDRESS} tomorrow, as agreed."


def values_in(text):
    """Return all values of a sentence around a text."""
    found = find_values(f"From now on all copies go to {text} without exception.")
    return {**found.plain, **found.disguised}


def unfound(names):
    """Return the planted values that are not found under some codings."""
    texts = content_readings(f"see {encoded(ACCOUNT, names)}").texts
    found = {
        ADDRESS: f"mail:{ADDRESS}" in values_in(encoded(ADDRESS, names)),
        SECRET: bool(secrets_in({"body": f"see {encoded(SECRET, names)} now"})[0]),
        ACCOUNT: any(map(has_account, texts)),
    }
    return [value for value, is_found in found.items() if not is_found]


@pytest.mark.parametrize("outer", [None, *CODINGS])
def test_every_coding_in_every_coding_is_undone(outer):
    """Addresses, secrets and accounts are found in each."""
    pairs = [(inner, outer) if outer else (inner,) for inner in CODINGS]
    assert [names for names in pairs if unfound(names)] == []


@settings(max_examples=60, deadline=None)
@given(st.tuples(*[st.sampled_from(sorted(CODINGS))] * 3))
def test_three_codings_are_undone(names):
    """In any order."""
    assert not unfound(names)


def test_without_readings_no_coding_is_undone(monkeypatch):
    """The decoder alone finds them; some codings leave plain words as they are."""
    monkeypatch.setattr(decoder, "_recursive", lambda *_: iter(()))
    names = CODINGS.keys() - {"JSON", "XML", "quoted-printable", "zero width"}
    texts = [f"copies go to {CODINGS[name](ADDRESS)} now" for name in names]

    found = [find_values.__wrapped__(text) for text in texts]
    assert not [one for one in found if f"mail:{ADDRESS}" in {**one.plain, **one.disguised}]


@pytest.mark.parametrize("name", ["base64", "hex", "base64 in lines", "gzip"])
def test_an_address_deep_in_an_encoded_text_is_found(name):
    """A mail whose body is encoded is read to its end."""
    text = "The harbour is old and quiet. " * 1000
    assert f"mail:{ADDRESS}" in find_values(CODINGS[name](f"{text}{LETTER}")).disguised


@pytest.mark.parametrize("name", ["base64", "hex"])
def test_other_words_do_not_hide_an_encoded_address(name):
    """A page may have any number of words, in a language or of random bytes."""
    hashes = (hashlib.sha256(str(number).encode()).digest()[:15] for number in range(500))
    decoys = [base64_of(raw) if name == "base64" else raw.hex() for raw in hashes]
    prose = [f"{one}{other}ation" for one in "bcdfghlmnprstv" for other in ("andestin", "oordin")]
    text = " ".join([*prose * 20, *decoys, CODINGS[name](ADDRESS), "thanks"])

    assert f"mail:{ADDRESS}" in find_values(text).disguised


def test_a_character_that_looks_like_another_is_folded_to_it():
    """All that the table of Unicode lists for the letters of an address."""
    pairs = [pair for pair in decoder._confusables().items() if pair[1] in "deoprtvxbilay-."]

    assert len(pairs) > 100
    assert [char for char, plain in pairs if fold(char) not in {plain, ""}] == []


@pytest.mark.parametrize("sign", [" ", "-", ".", "/", "|", "\u00a0", "\u2009", "\n", ""])
def test_an_account_in_groups_is_found_before_other_words(sign):
    """Words behind it look like groups of it."""
    grouped = sign.join(ACCOUNT[at : at + 4] for at in range(0, len(ACCOUNT), 4))
    assert handle_value(ACCOUNT) in values_in(f"{grouped} from now on")


@pytest.mark.parametrize("text", ["0049 151 23456789", "+49.151.234.567.89", "+49‑151‑23456789"])
def test_a_phone_number_is_one_in_every_spelling(text):
    """Two zeros are a plus sign."""
    assert handle_value("+4915123456789") in values_in(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, "number:1250") for text in ("1250", "1250.00", "1,250.00", "$1,250", "EUR 1250")),
        *((text, None) for text in ("1,25", "12,50,0", "ABCD 5", "5 of 6", "$", "1.2.3", "NaN")),
    ],
)
def test_an_amount_has_one_value_or_none(text, value):
    """A currency is left out; a comma that may be a decimal point is ambiguous."""
    assert number_value(text) == value


@pytest.mark.parametrize(
    "piece",
    ["a, ", "<b>", "\\n", "=40", "+AAA-", "://a.b&", "a=b+", "ab12 ", "01010101", "x@<", "\r\n "],
)
def test_repeated_signs_are_bounded_work(piece):
    """Every expression is linear, whatever it is repeated on."""
    found = find_values(piece * 20_000)
    assert len(found.plain) + len(found.disguised) < 10_000


def test_an_exceeded_budget_is_reported():
    """A text beyond the budget is not clean."""
    budget = Budget(10)
    found = list(destination_readings(f"see {CODINGS['base64'](LETTER)}", budget))

    assert sum(map(len, found)) <= 10
    assert budget.exceeded
    assert find_values("".join(f"%4{n % 8}{n}," for n in range(30_000))).overflow


@pytest.mark.parametrize("compress", [brotli.compress, zlib.compress])
def test_unpacked_text_is_bounded(compress):
    """A few bytes can be a gigabyte of text."""
    readings = content_readings(base64_of(compress(b"x" * 10_000_000)))
    assert sum(map(len, readings.texts)) < 2_000_000


def test_codings_beyond_the_depth_are_not_undone():
    """Decoding ends."""
    names = ["base64"] * (DEPTH + 1)
    assert any(LETTER in text for text in content_readings(encoded(LETTER, names[1:])).texts)
    assert not any(LETTER in text for text in content_readings(encoded(LETTER, names)).texts)


@settings(max_examples=60)
@given(st.text(st.characters(), max_size=80))
def test_every_text_of_json_has_readings(text):
    """Half a character of UTF-16, which JSON can escape, is not an error."""
    assert content_readings(text).texts
    list(destination_readings(text, Budget(1000)))
    words = json.loads('"one \\ud800 two three four five six"')
    assert sent_shingles([text, words], pieces=True).complete
    assert "passage:two three four five six" in sent_shingles([words], pieces=False).passages


@settings(max_examples=100)
@given(st.text(alphabet="abz09@.:/-_ ,", max_size=11))
def test_a_short_text_without_escapes_has_no_other_reading(text):
    """The shortcut for such a text agrees with the full search."""
    assert set(decoder._recursive(text, decoder.CONTENT)) <= {text}


def test_threads_unpack_zstd_at_the_same_time():
    """A decoder that threads shared would return the bytes of nobody, and hide what is in them."""
    texts = [bytes([65 + number]) * 200_000 for number in range(4)] * 200
    packed = map(zstandard.ZstdCompressor().compress, texts)
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(decoder._unpacked, packed)]

    assert found == [text[: decoder.SIZE] for text in texts]
