"""Draws of the surrogate that were made, kept in a file so that a later run goes on from them."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Groups = dict[str, dict[str, float]]

_CODE: Final = ("world.py", "detectors.py", "encoder.py", "evaluation.py")
"""Files beside this one that decide what a draw shows, as equations 1 to 5 do."""


class Draws:
    """The results of draws, by the parameters that they were made with.

    Args:
        path: JSON lines, one per draw; None keeps nothing.  Lines of other code are left alone and
            not used; a line that was cut short is passed over.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known: dict[str, Groups] = {}
        self._torn = ""
        """What ends the last line where its writer was killed."""
        if path is not None and path.exists():
            text = path.read_text(encoding="utf-8")
            self._torn = "" if text.endswith("\n") or not text else "\n"
            for line in text.splitlines():
                self._read(line)

    def _read(self, line: str) -> None:
        try:
            row = json.loads(line)
        except ValueError:
            return
        if row["code"] == code_digest():
            self._known[_name(row["how"])] = row["groups"]

    def has(self, how: dict[str, Any]) -> bool:
        """Return whether a draw was made."""
        return _name(how) in self._known

    def made(self, how: dict[str, Any], make: Callable[[], Groups]) -> Groups:
        """Return what a draw showed, made now where it was not before."""
        name = _name(how)
        if name not in self._known:
            groups = self._known[name] = make()
            if self._path is not None:
                row = json.dumps({"code": code_digest(), "how": how, "groups": groups})
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(self._torn + row + "\n")
                self._torn = ""
        return self._known[name]


def _name(how: dict[str, Any]) -> str:
    return json.dumps(how, sort_keys=True)


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return the digest of the code that makes draws and measures them."""
    here = Path(__file__).parent
    equations = here.parents[1] / "propagation" / "credibility.py"
    digest = hashlib.sha256()
    for path in (*(here / name for name in _CODE), equations):
        digest.update(path.read_bytes())
    return digest.hexdigest()
