"""The words of wallets' seeds."""

import hashlib
from pathlib import Path

from guard.content import seed_words


def test_the_words_are_those_of_bip_39_to_the_byte():
    """A word too few would let a seed pass; the digest is that of the standard's english.txt."""
    data = Path(seed_words.__file__).with_suffix(".txt").read_bytes()
    digest = "2f5eed53a4727b4bf8880d8f3f199efc90e58503646d9ff8eff3a2ed3b24dbda"

    assert hashlib.sha256(data).hexdigest() == digest
    assert len(seed_words.WORDS) == 2048
