"""The memories that selections are measured on: LoCoMo, 2WikiMultihopQA and generated graphs.

No language model takes part.  Entities are names and word stems; a fact joins its subject with
everything that is said of it; a passage is joined to the entities that its text mentions: HippoRAG
2's graph, with a plain reader in the place of its OpenIE.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer

from guard.core.errors import InputError
from guard.extensions.graph_memory.graph import Graph, Ranking, Recall
from guard.extensions.graph_memory.replay import is_order
from guard.extensions.graph_memory.selectors.pagerank import DAMPING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from guard.core.model import Json

_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]{2,}|\d{4}")
_ENDINGS: Final = ("ingly", "edly", "ing", "ies", "ied", "'s", "es", "ed", "ly", "s")
_STOP: Final = ENGLISH_STOP_WORDS | {
    "did", "does", "doe", "kind", "like", "really", "thing", "things", "think", "want", "wants",
    "going", "got", "get", "great", "lot", "just", "yeah", "know", "feel", "feels", "make",
}  # fmt: skip
ADVERSARIAL: Final = 5
"""LoCoMo's category of questions that have no answer."""
PASSAGES_AT: Final = 0.05
"""Weight of the dense score of passages in HippoRAG 2's reset (``passage_node_weight``)."""


def stems(text: str) -> list[str]:
    """Return the content words of a text, cut to a stem, in order."""
    found: list[str] = []
    for word in _WORD.findall(text):
        low = word.lower().strip("'-")
        if low in _STOP or len(low) < 3:
            continue
        for ending in _ENDINGS:
            if low.endswith(ending) and len(low) - len(ending) >= 3:
                low = low[: -len(ending)]
                break
        if low not in _STOP:
            found.append(low)
    return found


@dataclass(slots=True)
class Question:
    """One question, and the items that are right."""

    id: str
    recall: Recall
    """With the reset on entities, each alike: the paper's."""
    evidence: frozenset[int]
    dense: np.ndarray | None = None
    """Similarity of each item to the question, in the order of ``Memory.graph.items``."""
    text: str = ""


@dataclass(slots=True)
class Memory:
    """One memory, its facts, and the questions asked of it."""

    name: str
    graph: Graph
    names: list[str]
    fact: np.ndarray
    """Number of the fact that each edge was extracted from, -1 for none."""
    facts: int
    questions: list[Question]
    spread: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Number of items that each node is joined to."""

    @property
    def all_entities(self) -> np.ndarray:
        """Numbers of the nodes that are not items."""
        return np.setdiff1d(np.arange(self.graph.size), self.graph.items)

    def entities(self, item: int) -> list[int]:
        """Return the entities that an item is joined to."""
        found: list[int] = np.setdiff1d(self.graph.neighbours(item), self.graph.items).tolist()
        return found


def with_passages(memory: Memory) -> Memory:
    """Return a memory whose walks restart at passages as well, as HippoRAG 2 itself has them.

    Each passage weighs its similarity to the question, scaled to [0, 1], times ``PASSAGES_AT``.
    """
    items, questions = memory.graph.items.tolist(), []
    for one in memory.questions:
        if one.dense is None:
            continue
        width = float(np.ptp(one.dense)) or 1.0
        weights = PASSAGES_AT * (one.dense - one.dense.min()) / width
        near = {n: w for n, w in zip(items, weights.tolist(), strict=True) if w > 0}
        questions.append(replace(one, recall=replace(one.recall, seeds=one.recall.seeds | near)))
    return replace(memory, questions=questions)


class _Builder:
    """Collects nodes and edges by name."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.index: dict[str, int] = {}
        self.items: list[int] = []
        self.edges: list[tuple[int, int, int]] = []

    def node(self, name: str) -> int:
        number = self.index.get(name)
        if number is None:
            number = self.index[name] = len(self.names)
            self.names.append(name)
        return number

    def item(self, name: str) -> int:
        self.items.append(self.node(name))
        return self.items[-1]

    def join(self, one: int, two: int, fact: int) -> None:
        if one != two:
            self.edges.append((one, two, fact))

    def graph(self) -> tuple[Graph, np.ndarray]:
        edges = np.array(self.edges, dtype=np.int32).reshape(-1, 3)
        graph = Graph(
            len(self.names),
            np.array(self.items, dtype=np.int64),
            edges[:, 0].copy(),
            edges[:, 1].copy(),
            np.ones(len(edges)),
        )
        return graph, edges[:, 2].copy()


POOL: Final = 20
"""Candidates of each retriever: Graphiti's, twice its limit of ten."""


def _best(scores: np.ndarray) -> np.ndarray:
    """Return the places of the greatest scores, none of zero."""
    order = np.argsort(-scores, kind="stable")[:POOL]
    return order[scores[order] > 0]


def shared_entities(graph: Graph, spread: np.ndarray, seeds: Iterable[int]) -> np.ndarray:
    """Return for each item how many of some entities it is joined to, rare ones counting more."""
    asked = np.zeros(graph.size)
    for node in seeds:
        asked[node] = 1 / (1 + spread[node])
    pattern = graph.matrix[graph.items].copy()
    pattern.data = np.ones_like(pattern.data)
    found: np.ndarray = pattern @ asked
    return found


def _spread(graph: Graph) -> np.ndarray:
    is_item = np.zeros(graph.size)
    is_item[graph.items] = 1
    pattern = graph.matrix.copy()
    pattern.data = np.ones_like(pattern.data)
    found: np.ndarray = pattern @ is_item
    return found


def read_json(path: Path) -> Json:
    """Return a JSON document, compressed or not, whatever its name."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    opened = gzip.open if packed else open
    with opened(path, "rt", encoding="utf-8") as file:
        document: Json = json.load(file)
        return document


def locomo(path: Path) -> Iterator[Memory]:
    """Yield the conversations of a LoCoMo file: observations as facts, turns as passages.

    A conversation without observations has no facts; a question without evidence is not asked.

    Raises:
        InputError: the file is not a JSON document of conversations.
    """
    try:
        entries = read_json(path)
    except (OSError, ValueError) as error:
        raise InputError(f"`{path}` cannot be read as JSON: {error}") from error
    entries = entries if isinstance(entries, list) else [entries]
    if not all(isinstance(e, dict) and isinstance(e.get("conversation"), dict) for e in entries):
        raise InputError(f"`{path}` has no list of LoCoMo's conversations (`conversation`, `qa`)")
    for number, entry in enumerate(entries):
        yield _conversation(entry, f"{number} {entry.get('sample_id', '')}".strip())


def _turns(conversation: dict[str, Json]) -> list[tuple[str, str, str]]:
    """Return the id, the speaker and the text of each turn."""
    return [
        (
            turn["dia_id"],
            turn["speaker"],
            f"{turn.get('text') or ''} {turn.get('blip_caption') or ''}",
        )
        for key, session in conversation.items()
        if key.startswith("session_") and isinstance(session, list)
        for turn in session
    ]


def _asked(entry: dict[str, Json]) -> list[tuple[int, str, list[str]]]:
    """Return the place, the text and the evidence of each question that has an answer."""
    return [
        (place, asked["question"], re.findall(r"D\d+:\d+", " ".join(map(str, asked["evidence"]))))
        for place, asked in enumerate(entry.get("qa") or ())
        if asked.get("category") != ADVERSARIAL and asked.get("evidence")
    ]


def _conversation(entry: dict[str, Json], name: str) -> Memory:
    build = _Builder()
    turns = {turn: (who, text) for turn, who, text in _turns(entry["conversation"])}
    numbers = {turn: build.item(f"turn {turn}") for turn in turns}
    observed = [
        (speaker, fact[0])
        for session in entry.get("observation", {}).values()
        for speaker, facts in session.items()
        for fact in facts
    ]
    for speaker, text in observed:
        for word in (speaker.lower(), *stems(text)):
            build.node(word)
    for turn, (speaker, text) in turns.items():
        for word in dict.fromkeys((speaker.lower(), *stems(text))):
            if word in build.index:
                build.join(numbers[turn], build.index[word], -1)
    for number, (speaker, text) in enumerate(observed):
        subject = build.index[speaker.lower()]
        for word in dict.fromkeys(stems(text)):
            build.join(subject, build.index[word], number)
    graph, fact = build.graph()
    return Memory(
        name,
        graph,
        build.names,
        fact,
        len(observed),
        _questions(entry, name, turns, numbers, build, graph),
        _spread(graph),
    )


def _questions(
    entry: dict[str, Json],
    name: str,
    turns: dict[str, tuple[str, str]],
    numbers: dict[str, int],
    build: _Builder,
    graph: Graph,
) -> list[Question]:
    """Return the questions of a conversation that name an entity and have evidence in it."""
    vectors = TfidfVectorizer(analyzer=stems, sublinear_tf=True)
    try:
        matrix = vectors.fit_transform([f"{speaker} {text}" for speaker, text in turns.values()])
    except ValueError:
        # No turn has a word.
        return []
    found, spread = [], _spread(graph)
    for place, text, asked in _asked(entry):
        evidence = frozenset(numbers[turn] for turn in asked if turn in numbers)
        seeds = {n: 1.0 for word in stems(text) if (n := build.index.get(word))}
        if not evidence or not seeds:
            continue
        dense = (matrix @ vectors.transform([text]).T).toarray()[:, 0]
        shared = shared_entities(graph, spread, seeds)
        lists = tuple(tuple(graph.items[_best(scores)].tolist()) for scores in (dense, shared))
        found.append(Question(f"{name}/{place}", Recall(seeds, lists), evidence, dense, text))
    return found


_NAME: Final = re.compile(
    r"[A-Z][\w.'\u2019-]*(?: (?:of|the|de|la|von|van|and|&|[A-Z0-9][\w.'\u2019-]*))*"
)
_TOKEN: Final = re.compile(r"\w+(?:['\u2019.-]\w+)*|&")
LONGEST: Final = 10
"""Words of the longest title that is looked for."""


def wiki(path: Path, limit: int) -> Memory:
    """Return the passages of 2WikiMultihopQA, joined by the titles that their texts mention.

    A question is a chain of mentions A -> B -> C: asked by A and C, answered by the passage of B,
    where those of A and C are not ranked.

    Args:
        path: the corpus.
        limit: the greatest number of questions; drawn with a fixed seed.
    """
    entries = read_json(path)
    titles = {_tokens(entry["title"]): number for number, entry in enumerate(entries)}
    build = _Builder()
    items = [build.item(f"passage {entry['title']}") for entry in entries]
    own = [build.node(entry["title"]) for entry in entries]
    mentioned: list[list[int]] = []
    fact = 0
    for number, entry in enumerate(entries):
        build.join(items[number], own[number], -1)
        named = [m for m in _titles_in(entry["text"], titles) if m != number]
        mentioned.append(named)
        others = [build.node(n) for n in dict.fromkeys(_NAME.findall(entry["text"])[:12])]
        for one in dict.fromkeys([*(own[m] for m in named), *others]):
            build.join(items[number], one, -1)
            build.join(own[number], one, fact)
            fact += 1
    graph, facts = build.graph()
    chains = [
        (a, b, c)
        for a in range(len(entries))
        for b in mentioned[a]
        for c in mentioned[b]
        if c not in {a, b}
    ]
    order = np.random.default_rng(0).permutation(len(chains))
    questions: dict[int, Question] = {}
    for a, b, c in (chains[place] for place in order.tolist()):
        if len(questions) < limit and b not in questions:
            recall = Recall({own[a]: 1.0, own[c]: 1.0}, without=frozenset((items[a], items[c])))
            questions[b] = Question(f"2wiki/{b}", recall, frozenset((items[b],)))
    return Memory(
        "2wiki", graph, build.names, facts, fact, list(questions.values()), _spread(graph)
    )


def _tokens(text: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(re.sub(r"\s*\(.*?\)", "", text)))


def _titles_in(text: str, titles: dict[tuple[str, ...], int]) -> list[int]:
    """Return the numbers of the titles that a text names, the longest at each word."""
    words = tuple(_TOKEN.findall(text))
    found: dict[int, None] = {}
    at = 0
    while at < len(words):
        for length in range(min(LONGEST, len(words) - at), 0, -1):
            number = titles.get(words[at : at + length])
            if number is not None:
                found[number] = None
                at += length
                break
        else:
            at += 1
    return list(found)


def generated(nodes: int, edges: int, seed: int) -> Graph:
    """Return a graph whose degrees follow a power law; a fifth of its nodes are items."""
    import igraph

    rng = np.random.default_rng(seed)
    # Barabasi's model, so that hubs and leaves are as unlike as in extracted graphs.
    igraph.set_random_number_generator(random.Random(seed))  # noqa: S311  (a simulation)
    pairs = np.array(igraph.Graph.Barabasi(nodes, edges // nodes).get_edgelist(), dtype=np.int32)
    pairs = rng.permutation(nodes).astype(np.int32)[pairs]
    items = np.sort(rng.choice(nodes, nodes // 5, replace=False)).astype(np.int64)
    return Graph(nodes, items, pairs[:, 0].copy(), pairs[:, 1].copy(), np.ones(len(pairs)))


# --- the library that stores rank with --------------------------------------------------------

PRECISION: Final = 11
"""Decimals of a score that prpack gets right; scores that differ by less are equal."""


class Reference:
    """``personalized_pagerank`` on one graph.

    Args:
        graph: undirected and weighted.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        import igraph

        ends = np.column_stack([graph.source, graph.target])
        self._other = igraph.Graph(n=graph.size, edges=ends)
        self._weights = graph.weight.tolist()

    def order(self, recall: Recall) -> list[int]:
        """Return the items that a store would serve, best first."""
        graph, reset = self._graph, np.zeros(self._graph.size)
        reset[list(recall.seeds)] = list(recall.seeds.values())
        scores = self._other.personalized_pagerank(
            damping=DAMPING,
            directed=False,
            weights=self._weights,
            reset=reset.tolist(),
            implementation="prpack",
        )
        of_items = np.round(np.asarray(scores)[graph.items], PRECISION)
        items = graph.items
        if recall.without:
            kept = ~np.isin(items, np.fromiter(recall.without, np.int64))
            items, of_items = items[kept], of_items[kept]
        found: list[int] = items[np.lexsort((items, -of_items))[: recall.top]].tolist()
        return found

    def agrees(self, recall: Recall, ranking: Ranking) -> bool:
        """Return whether a ranking is the reference's, equal scores apart."""
        return is_order(self.order(recall), ranking)
