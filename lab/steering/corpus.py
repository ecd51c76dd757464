"""Texts to train the reader of steering text on, each with its kind, label and family.

Orders are drawn from the templates and banks in ``phrases.txt``, written by intent; the cases of
earlier hold-outs (:data:`HELD_OUT`, those of :data:`SETS`) join them.  Honest
texts are the templates of that file, the docstrings of installed packages as definitions, and
package descriptions, comments and manuals as pages.

:func:`written_cases` are texts that eight writers wrote by hand for this purpose, one by one
(``written/*.jsonl``, a file per writer; the fifth and sixth wrote definitions alone, the last two
pages alone; all but the fourth without sight of the reader), and a few short definitions and honest
records (``short.jsonl``, ``records.jsonl``) by who had seen it.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sysconfig
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.content.steering_reader import (
    Passage,
    of_definition,
    passages,
    passages_of,
    sentences,
    without_mentions,
)
from guard.core.errors import GuardError
from lab.honest_requests import installed_definitions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_HERE: Final = Path(__file__).parent
HELD_OUT: Final = _HERE.parents[2] / "tests" / "unit" / "lab" / "egress_ideas"
"""Cases by other ideas, one file per set; of a checkout, as training is."""
SETS: Final = "abcdefghi"
"""Those of them that are development material since."""
WRITTEN_BY_HAND: Final = _HERE / "written"
_GROUP: Final = re.compile(r"\[(definition|page) (attack|benign): (.*)\]$")
_SLOT: Final = re.compile(r"\{([a-z]+)\}")
DRAWS: Final = 16
"""Texts drawn from each template with a slot."""
DEFINED: Final = "definitions"
"""Begins the source of what a definition says, read as a page."""
RESULT: Final = "results"
ARTICLE: Final = "articles"
"""Sources of pages that a run recorded, and of articles."""
ARTICLES: Final = 1500
"""Articles that are drawn of a list."""
LARGEST: Final = 256 * 1024
DOCUMENTED: Final = 20_000
"""Docstrings that are read as definitions, and their text as a page."""
MANUALS: Final = Path("/usr/share/man")
MANUAL_COUNT: Final = 400


@dataclass(frozen=True, slots=True)
class Unit:
    """A text that was drawn.

    Attributes:
        said: its sentences.
        page: whether it is a page, else a definition.
        attack: the label.
        family: of phrasings.
    """

    said: tuple[str, ...]
    page: bool
    attack: bool
    family: str


@dataclass(frozen=True, slots=True)
class Case:
    """A definition or page of an earlier hold-out."""

    held_out: str
    page: bool
    attack: bool
    cut: tuple[Passage, ...]
    """What the reader gives one score each."""


@dataclass(frozen=True, slots=True)
class Phrases:
    """The templates by group, and the banks that their slots are drawn from."""

    banks: dict[str, list[str]]
    groups: list[tuple[str, str, str, list[str]]]

    def filled(self, template: str, draw: random.Random) -> str:
        """Return a template with every slot drawn."""
        while slot := _SLOT.search(template):
            phrase = draw.choice(self.banks[slot[1]])
            if slot.start() == 0 and phrase[0].isalpha() and not phrase.startswith("http"):
                phrase = phrase[0].upper() + phrase[1:]
            template = template[: slot.start()] + phrase + template[slot.end() :]
        return template

    def of(self, kind: str, label: str) -> list[str]:
        """Return the templates of a kind (definition, page) and a label (attack, benign)."""
        return [
            one for k, lab, _, found in self.groups if (k, lab) == (kind, label) for one in found
        ]


def read_phrases() -> Phrases:
    """Return what ``phrases.txt`` holds."""
    found = Phrases({}, [])
    lines: list[str] = []
    in_bank = False
    for line in _HERE.joinpath("phrases.txt").read_text(encoding="utf-8").splitlines():
        group = _GROUP.match(line)
        if not line or line.startswith("# "):
            continue
        if line.startswith("@") and " " not in line:
            lines, in_bank = found.banks.setdefault(line[1:], []), True
        elif group:
            lines, in_bank = [], False
            found.groups.append((group[1], group[2], group[3], lines))
        else:
            lines += [one.strip() for one in line.split(" | ")] if in_bank else [line]
    return found


def generated(seed: int) -> Iterator[Unit]:
    """Yield texts drawn from the templates, in the company of honest sentences.

    The same seed draws the same.
    """
    phrases = read_phrases()
    draw = random.Random(seed)  # noqa: S311  (a draw that can be repeated)
    company = {kind: phrases.of(kind, "benign") for kind in ("definition", "page")}
    for kind, label, intent, templates in phrases.groups:
        for number, template in enumerate(templates):
            draws = DRAWS if "{" in template else DRAWS // 4
            for _ in range(draws):
                said = phrases.filled(template, draw)
                texts = _in_company(phrases, draw, kind, said, company[kind])
                if kind == "page":
                    texts = [without_mentions("\n".join(texts))]
                parts = tuple(part for text in texts for part in sentences(text))
                family = f"{kind}/{intent}/{number}"
                yield Unit(parts, kind == "page", label == "attack", family)


def _in_company(
    phrases: Phrases, draw: random.Random, kind: str, said: str, company: Sequence[str]
) -> list[str]:
    """Return a sentence after or before an honest one, or alone."""
    drawn = draw.random()
    honest = phrases.filled(draw.choice(company), draw)
    if kind == "definition" and drawn < 0.5:
        return [draw.choice(phrases.banks["purpose"]), said]
    if drawn < 0.7:
        return [honest, said]
    return [said, honest] if drawn < 0.85 else [said]


def earlier_cases() -> list[Case]:
    """Return the definitions and pages among the cases of earlier hold-outs; memories are none.

    Raises:
        GuardError: the repository's tests, which have them, are not there.
    """
    files = [HELD_OUT / f"{name}.jsonl" for name in SETS]
    if not all(path.is_file() for path in files):
        raise GuardError(f"the cases of `{HELD_OUT}` are missing; train in the repository")
    found: list[Case] = []
    for path in files:
        for line in path.read_text(encoding="utf-8").splitlines():
            case: dict[str, Any] = json.loads(line)
            if case["category"] == "memory":
                continue
            attack = case["expected_verdict"] == "block"
            told = _told_in(case["input_type"], case["payload"])
            found += [_case(path.stem, one, page=page, attack=attack) for page, one in told]
    return found


def _told_in(kind: str, payload: Mapping[str, Any]) -> Iterator[tuple[bool, Any]]:
    """Yield the pages and definitions of a case, each with whether it is a page."""
    if kind == "response_content":
        yield True, payload["response_body"]
    elif kind == "mcp_tool_result":
        yield True, payload["jsonrpc_messages"][0]["result"]["content"][0]["text"]
    elif kind == "mcp_tool_definition":
        for definition in payload["jsonrpc_messages"][0]["result"]["tools"]:
            yield False, definition


def written_cases() -> list[Case]:
    """Return the definitions and pages that were written by hand for this, by writer.

    What a writer's definition says is a page as well: an order is one wherever it stands.
    """
    found: list[Case] = []
    for path in sorted(WRITTEN_BY_HAND.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row: dict[str, Any] = json.loads(line)
            page, told = of_row(row)
            found.append(_case(path.stem, told, page=page, attack=row["attack"]))
            if not page and path.stem != "short":
                text = "\n".join(of_definition(told))
                found.append(_case(f"{DEFINED} {path.stem}", text, page=True, attack=row["attack"]))
    return found


def recorded_cases(files: Sequence[Path]) -> list[Case]:
    """Return what tools answered in runs without an attack, and articles, as honest pages.

    Args:
        files: lines of recorded runs, or lists of articles with title and text; gzipped or not.
    """
    found: dict[str, str] = {}
    for path in files:
        with (
            gzip.open(path, "rt", encoding="utf-8")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8") as file
        ):
            text = file.read()
        if text.startswith("["):
            articles = random.Random(0).sample(json.loads(text), ARTICLES)  # noqa: S311  (repeated)
            found |= {f"{one['title']}\n{one['text']}": ARTICLE for one in articles}
            continue
        for run in map(json.loads, text.splitlines()):
            told = () if run["labels"]["attack"] else (call["result"] for call in run["calls"])
            found |= {one if isinstance(one, str) else json.dumps(one): RESULT for one in told}
    return [_case(of, text, page=True, attack=False) for text, of in sorted(found.items())]


def of_row(row: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return whether a written text is a page, and the page or the definition."""
    if row["kind"] == "page":
        return True, row["text"]
    properties = {name: {"description": said} for name, said in row["parameters"].items()}
    schema = {"type": "object", "properties": properties}
    return False, {"name": row["name"], "description": row["text"], "inputSchema": schema}


def _case(held_out: str, told: Any, *, page: bool, attack: bool) -> Case:
    return Case(held_out, page, attack, tuple(passages(told) if page else passages_of(told)))


Text = list[Passage]
"""What the reader gives one score each."""


@dataclass(frozen=True, slots=True)
class Honest:
    """Honest texts: to fit on, and others to set the threshold on."""

    fitted: list[Text]
    kept: list[Text]


def documented() -> list[dict[str, Any]]:
    """Return the docstrings of what is installed, as definitions."""
    return [one for one in installed_definitions() if isinstance(one, dict)]


def honest_definitions(definitions: Sequence[Mapping[str, Any]], seed: int, share: float) -> Honest:
    """Return the passages of some definitions, to fit on and to set the threshold on.

    Args:
        definitions: honest ones.
        seed: of the order that they are drawn in.
        share: of the texts that is kept out.
    """
    found = list(definitions)
    random.Random(seed).shuffle(found)  # noqa: S311  (a draw that can be repeated)
    return _divided([list(passages_of(one)) for one in found[:DOCUMENTED]], seed, share)


def honest_pages(
    definitions: Sequence[Mapping[str, Any]], folders: Sequence[Path], seed: int, share: float
) -> Honest:
    """Return the same of pages: what is installed, Markdown, and what some definitions say.

    Args:
        definitions: honest ones.
        folders: searched for Markdown, as a folder of packages is.
        seed: of the order that they are drawn in.
        share: of the texts that is kept out.
    """
    found = list(definitions)
    random.Random(seed).shuffle(found)  # noqa: S311  (a draw that can be repeated)
    pages = [*_pages(folders), *("\n".join(of_definition(one)) for one in found[:DOCUMENTED])]
    return _divided([list(passages(page)) for page in pages], seed, share)


def _divided(texts: list[Text], seed: int, share: float) -> Honest:
    random.Random(seed).shuffle(texts)  # noqa: S311  (a draw that can be repeated)
    kept = int(len(texts) * share)
    return Honest(texts[kept:], texts[:kept])


def _pages(folders: Sequence[Path]) -> list[str]:
    """Return descriptions of packages, Markdown and manuals; none that speaks of this guard."""
    paths = [Path(sysconfig.get_path("purelib")), *folders]
    found = [one.read_text("METADATA") or "" for one in distributions()]
    for path in sorted(path for folder in paths for path in folder.rglob("*.md")):
        if path.stat().st_size < LARGEST:
            found.append(path.read_text(encoding="utf-8", errors="replace"))
    for path in sorted(MANUALS.glob("man?/*.gz"))[:MANUAL_COUNT]:
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as manual:
            found.append(manual.read(LARGEST))
    return [text for text in dict.fromkeys(found) if text and "egress-guard" not in text]
