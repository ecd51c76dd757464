"""The English words that wallets write their seeds in (BIP 39).  Pure: no I/O but its own data.

The list stands beside this module to the byte as BIP 39 has it, and never changes.  The packages
that ship it make seeds and keys as well; the guard needs none of that in its process.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

WORDS: Final = frozenset(
    files("guard.content").joinpath("seed_words.txt").read_text(encoding="ascii").split()
)
