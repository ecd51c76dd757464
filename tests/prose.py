"""Checks of the mechanical rules of the writing guide: ``python -m tests.prose [FILE ...]``.

Docstrings begin with a verb or a noun, "not an X" is not written "no X", and few sentences are
long.  Prints one line per finding and exits 1 if there is any.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
OPENERS: Final = frozenset(
    "what who whom whose whoever whatever whether how where which "  # noqa: SIM905  (a word list)
    "of as those nobody no that when not".split()
)
"""First words that hide the subject of a docstring."""
NO_X: Final = re.compile(
    r"(?<![Tt]here )\b(?:is|are|was|were|be) no "
    r"(?!longer\b|more\b|such\b|other\b|need\b|way\b)(\w+)"
)
"""A negated noun: "this is no act" for "this is not an action"."""
LONG: Final = 30
"""Words of a sentence that is too long."""
LONG_SHARE: Final = 0.03
"""Share of sentences that may be long, in docstrings."""
SENTENCE: Final = re.compile(r"(?<=[.!?:])\s+|\n\s*\n|\n\s*[-*|]|\n\s*(?=\w+: )")


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring of a module, fields included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not hasattr(node, "body") or not isinstance(node.body, list):
            continue
        for one in node.body:
            value = one.value if isinstance(one, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.lineno, value.value


def findings(line: int, text: str) -> Iterator[str]:
    """Yield the findings in one docstring."""
    first = re.match(r"\W*(\w+)", text)
    if first and first[1].lower() in OPENERS:
        yield f"{line}: docstring begins with `{first[1]}`; begin with a verb or a noun"
    for match in NO_X.finditer(text):
        yield f"{line}: `{match[0]}`; write `not a {match[1]}`"


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, lists and paragraphs apart."""
    return [one for part in SENTENCE.split(text) if (one := part.strip())]


def main(names: list[str]) -> int:
    """Check the files, by default all tracked modules; return the exit code."""
    if not names:
        listed = subprocess.run(
            ["git", "ls-files", "guard/*.py", "lab/*.py"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        names = listed.stdout.split()
    failed = total = long = 0
    for name in names:
        for line, text in docstrings(ROOT / name):
            for finding in findings(line, text):
                failed += 1
                print(f"{name}:{finding}")
            for sentence in sentences(text):
                total += 1
                long += len(sentence.split()) > LONG
    print(f"{total} sentences, {long} above {LONG} words; {failed} findings", file=sys.stderr)
    return 1 if failed or long > LONG_SHARE * total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
