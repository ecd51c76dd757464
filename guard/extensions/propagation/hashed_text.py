"""Text as hashed words, the input of models of memory texts.  Pure."""

from __future__ import annotations

import re
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

HASHED: Final = 768
_WORD: Final = re.compile(r"\w+")


def hashed(texts: Sequence[str]) -> NDArray[np.float64]:
    """Return words and word pairs of each text hashed to 768 signed counts, unit length."""
    rows = np.zeros((len(texts), HASHED))
    for row, text in zip(rows, texts, strict=True):
        words = _WORD.findall(text.casefold())
        for token in (*words, *(f"{a} {b}" for a, b in pairwise(words))):
            code = zlib.crc32(token.encode("utf-8", "surrogatepass"))
            row[code % HASHED] += 1.0 if code & 0x80000000 else -1.0
    found: NDArray[np.float64] = rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-9)
    return found
