"""Checks of the mechanical rules of the writing guide: ``python -m tests.prose [FILE ...]``.

Docstrings begin with a verb or a noun, "not an X" is not written "no X", and sentences are short.
Prints one line per finding and exits 1 if there is any.  For documents (``*.md``) it prints their
words, their sentences and each sentence that is too long.
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPENERS = frozenset(
    "what who whom whose whoever whatever whether how where which "  # noqa: SIM905  (a word list)
    "of as those nobody no that when not".split()
)
"""First words that hide the subject of a docstring."""
NO_X = re.compile(
    r"(?<![Tt]here )\b(?:is|are|was|were|be) no "
    r"(?!longer\b|more\b|such\b|other\b|need\b|way\b)(\w+)"
)
"""A negated noun: "this is no act" for "this is not an action"."""
LONG = 40
"""Words of the longest sentence."""
SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n\s*\n|\n\s*[-*|=├└]|\n\s*(?=\w+: )")


LONG_IN_DOCUMENTS = 30
"""Words from which on a sentence of a document counts as long."""
GENERATED = "<!-- Made by"
"""Beginning of a page that is made from code or data."""


def document_sentences(text):
    """Return the sentences of a document, without code; table cells and list entries apart."""
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`\n]*`", "code", text)
    found = []
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#>]|\d+\.) ?)|(?<!\\)\|", text):
        found += re.split(r"(?<=[.!?:])\s+", " ".join(block.split()))
    return [one for one in found if re.search(r"\w+\W+\w+", one)]


def long_sentences(text):
    """Return the sentences of a document that are too long."""
    return [one for one in document_sentences(text) if len(one.split()) > LONG_IN_DOCUMENTS]


def written_documents():
    """Return the documents that people write, without the generated ones."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    reference = ROOT / "docs" / "reference"
    return sorted(
        path
        for path in paths
        if path.parent != reference and not path.read_text(encoding="utf-8").startswith(GENERATED)
    )


def docstrings(path):
    """Yield line and text of each docstring of a module, fields included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not hasattr(node, "body") or not isinstance(node.body, list):
            continue
        for one in node.body:
            value = one.value if isinstance(one, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.lineno, value.value


def findings(text):
    """Yield the kind of each finding in one docstring, with a message."""
    first = re.match(r"\W*(\w+)", text)
    if first and first[1].lower() in OPENERS:
        yield "opener", f"docstring begins with `{first[1]}`; begin with a verb or a noun"
    for match in NO_X.finditer(text):
        yield "negation", f"`{match[0]}`; write `not a {match[1]}`"
    for sentence in sentences(text):
        if (words := len(sentence.split())) > LONG:
            yield "length", f"sentence of {words} words; use at most {LONG}"


def sentences(text):
    """Return the sentences of a text, lists and paragraphs apart."""
    return [one for part in SENTENCE.split(text) if (one := part.strip())]


def findings_in(paths):
    """Yield the kind of each finding in some modules, with place and message."""
    for path in paths:
        for line, text in docstrings(path):
            for kind, message in findings(text):
                yield kind, f"{path.relative_to(ROOT)}:{line}: {message}"


def report(paths):
    """Print the measures of documents; return the exit code."""
    for path in paths:
        text = path.read_text(encoding="utf-8")
        long = long_sentences(text)
        all_of_them = len(document_sentences(text))
        name = path.relative_to(ROOT)
        print(f"{name}: {len(text.split())} words, {len(long)} of {all_of_them} sentences are long")
        for one in long:
            print(f"  {one}")
    return 0


def main(names):
    """Check the files, by default all modules; return the exit code."""
    documents = [ROOT / name for name in names if name.endswith(".md")]
    if documents:
        return report(documents)
    paths = [ROOT / name for name in names] or [
        path for top in ("guard", "lab") for path in sorted((ROOT / top).rglob("*.py"))
    ]
    found = [message for _, message in findings_in(paths)]
    print("\n".join(found))
    print(f"{len(found)} findings", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
