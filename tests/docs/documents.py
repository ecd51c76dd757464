"""Fenced blocks of the documents, and the commands in them."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(
    r'^(?P<indent> *)```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^ *```$',
    re.MULTILINE | re.DOTALL,
)


def blocks(language, *titles):
    """Return the fenced blocks of a language with one of the titles, each with its place."""
    found = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            if match["language"] == language and (match["title"] or "") in (titles or ("",)):
                line = text.count("\n", 0, match.start()) + 1
                content = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
                found.append(pytest.param(content, id=f"{path.stem}:{line}"))
    return found


def commands(text):
    """Yield the guard commands of a block, as words."""
    for line in text.replace("\\\n", " ").splitlines():
        # A quoted text over several lines is no command of the guard.
        if re.match(r"(\$ )?([A-Z_]+=\S+ )*guard ", line):
            yield shlex.split(line[line.index("guard ") :], comments=True)
