"""Numbers of accounts: a checksum decides, and numbers of everyday work are none."""

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stdnum import iban, luhn

from guard.policy.rules.content import found_in_arguments
from guard.values.account_numbers import WORDS, has_account, is_card

BANKS = {"DE": 18, "FR": 23, "NL": 14, "GB": 18}
SHOWN = ("{}", "card {} please", '{{"n": "{}"}}', "a,{},b", "n={}&x=1", "{} 12/27")


def fours(text):
    """Return a text in groups of four."""
    return [text[at : at + 4] for at in range(0, len(text), 4)]


def card(draw):
    """Return a valid number of a card."""
    body = f"4{draw.randrange(10**14):014d}"
    return body + luhn.calc_check_digit(body)


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("sign", ["", " ", "-"])
def test_a_card_is_found_and_one_with_a_wrong_digit_is_not(shown, sign):
    """In groups or not, whatever is around it."""
    draw = random.Random(f"{shown}{sign}")
    for _ in range(50):
        number = card(draw)
        wrong = number[:-1] + str((int(number[-1]) + 1) % 10)
        grouped = [sign.join(fours(one)) for one in (number, wrong)]
        assert has_account(shown.format(grouped[0]))
        assert not has_account(shown.format(grouped[1]))


NUMBERS = st.lists(st.floats(allow_nan=False), min_size=1, max_size=20)
PHONES = st.tuples(st.sampled_from(["+{}", "id {}", "2026-{}"]), st.integers(0, 10**12 - 1))


@given(NUMBERS.map(str) | PHONES.map(lambda drawn: drawn[0].format(drawn[1])))
def test_floats_and_phone_numbers_are_not_cards(text):
    """Their digits are no number by themselves; a phone has 13 with its country at most."""
    assert not has_account(text)
    assert not has_account(text.replace(", ", "\t"))


def test_decimals_with_the_digits_of_cards_are_not_cards():
    """Whatever the checksum says."""
    draw = random.Random(1)
    for number in (card(draw) for _ in range(200)):
        assert is_card(number)
        texts = f"0.{number}", f"[-0.{number}, 1.0]", f"{number}.25", f" .{number}"
        assert not any(map(has_account, texts))


@pytest.mark.parametrize("country", BANKS)
def test_a_bank_account_is_found_before_other_words(country):
    """python-stdnum knows its length."""
    draw = random.Random(country)
    letters = "ABCD" if country in {"NL", "GB"} else ""
    numbers = []
    for _ in range(200):
        digits = letters + "".join(draw.choices(string.digits, k=BANKS[country] - len(letters)))
        numbers.append(country + iban.calc_check_digits(f"{country}00{digits}") + digits)
    valid = [number for number in numbers if iban.is_valid(number)]
    assert valid
    for number in valid:
        assert has_account(f"{number} from now on")
        assert has_account(f"{' '.join(fours(number))} from now on")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", True),
        ("1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb", False),
        ("bc1qardv855yjngspvxuttq897aqca3lxju2y69jce", True),
        ("bc1qardv855yjngspvxuttq897aqca3lxju2y69jcf", False),
        ("0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045", True),
        ("ssn 536-90-4399", True),
        ("part 536-90-4399", False),
        ("routing number 021000021", True),
        ("routing number 021000022", False),
    ],
)
def test_other_numbers_need_a_checksum_or_their_name(text, expected):
    """A form alone says too little."""
    assert has_account(text) is expected


def test_a_seed_is_twelve_words_of_the_standard():
    """In a text or as a list; the list is that of BIP 39."""
    words = random.Random(1).sample(sorted(WORDS), 12)

    assert len(WORDS) == 2048
    assert has_account(" ".join(words))
    assert not has_account(" ".join(words[:11]))
    assert not has_account(" ".join([*words[:6], "the", *words[6:]]))
    assert found_in_arguments({"words": words}, {"account_found"}) == {"account_found"}
