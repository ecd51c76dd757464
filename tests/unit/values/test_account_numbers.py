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


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_floats_are_not_cards(numbers):
    """Their digits are not a number by themselves."""
    assert not has_account(str(numbers))
    assert not has_account("\t".join(map(repr, numbers)))


def test_decimals_with_the_digits_of_cards_are_not_cards():
    """Whatever the checksum says."""
    draw = random.Random(1)
    for number in (card(draw) for _ in range(200)):
        assert is_card(number)
        for text in (f"0.{number}", f"[-0.{number}, 1.0]", f"{number}.25", f" .{number}"):
            assert not has_account(text)


@given(st.integers(0, 10**13 - 1), st.sampled_from(["+{}", "id {}", "2026-{}"]))
def test_a_phone_number_is_not_a_card(number, shown):
    """With its country it has 13 digits at most."""
    assert not has_account(shown.format(str(number)[:12]))


@pytest.mark.parametrize("country", BANKS)
def test_a_bank_account_is_found_before_other_words(country):
    """python-stdnum knows its length."""
    draw = random.Random(country)
    letters = "ABCD" if country in {"NL", "GB"} else ""
    found = 0
    for _ in range(200):
        digits = "".join(draw.choice(string.digits) for _ in range(BANKS[country] - len(letters)))
        number = country + iban.calc_check_digits(f"{country}00{letters}{digits}")
        number += letters + digits
        if iban.is_valid(number):
            found += 1
            grouped = " ".join(fours(number))
            assert has_account(f"{number} from now on")
            assert has_account(f"{grouped} from now on")
    assert found


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
