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
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import igraph
import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer

from guard.core.errors import InputError
from guard.extensions.graph_memory.graph import Graph, Recall
from guard.extensions.graph_memory.selectors.pagerank import DAMPING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from guard.core.model import Json

_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]{2,}|\d{4}")
_ENDING: Final = re.compile(r"(?<=...)(ingly|edly|ing|ies|ied|'s|es|ed|ly|s)$")
_STOP: Final = ENGLISH_STOP_WORDS | {
    "did", "does", "doe", "kind", "like", "really", "thing", "things", "think", "want", "wants",
    "going", "got", "get", "great", "lot", "just", "yeah", "know", "feel", "feels", "make",
}  # fmt: skip
ADVERSARIAL: Final = 5
"""LoCoMo's category of questions that have no answer."""
POOL: Final = 20
"""Candidates of each retriever: Graphiti's, twice its limit of ten."""


def stems(text: str) -> list[str]:
    """Return the content words of a text, cut to a stem, in order."""
    words = (word.lower().strip("'-") for word in _WORD.findall(text))
    cut = (_ENDING.sub("", word) for word in words if word not in _STOP and len(word) > 2)
    return [word for word in cut if word not in _STOP]


class Question(NamedTuple):
    """One question, and the items that are right."""

    id: str
    recall: Recall
    """With the reset on entities, each alike: the paper's."""
    evidence: frozenset[int]


@dataclass
class Memory:
    """One memory, its facts, and the questions asked of it."""

    name: str
    graph: Graph
    fact: np.ndarray
    """Number of the fact that each edge was extracted from, -1 for none."""
    questions: list[Question]

    @property
    def all_entities(self) -> np.ndarray:
        """Numbers of the nodes that are not items."""
        return np.setdiff1d(np.arange(self.graph.size), self.graph.items)

    def entities(self, item: int) -> list[int]:
        """Return the entities that an item is joined to."""
        found: list[int] = np.setdiff1d(self.graph.neighbours(item), self.graph.items).tolist()
        return found

    @cached_property
    def spread(self) -> np.ndarray:
        """Number of items that each node is joined to."""
        is_item = np.zeros(self.graph.size)
        is_item[self.graph.items] = 1
        return self.counted(is_item)

    def counted(self, weights: np.ndarray) -> np.ndarray:
        """Return for each node the sum of the weights of its neighbours."""
        pattern = self.graph.matrix.copy()
        pattern.data = np.ones_like(pattern.data)
        found: np.ndarray = pattern @ weights
        return found


def read_json(path: Path) -> Json:
    """Return a JSON document, compressed or not, whatever its name."""
    packed = path.read_bytes()
    if packed.startswith(b"\x1f\x8b"):
        packed = gzip.decompress(packed)
    document: Json = json.loads(packed)
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


def _conversation(entry: dict[str, Json], name: str) -> Memory:
    turns = {
        turn["dia_id"]: (
            turn["speaker"].lower(),
            f"{turn.get('text') or ''} {turn.get('blip_caption') or ''}",
        )
        for key, session in entry["conversation"].items()
        if key.startswith("session_") and isinstance(session, list)
        for turn in session
    }
    observed = [
        (speaker.lower(), dict.fromkeys(stems(fact[0])))
        for session in entry.get("observation", {}).values()
        for speaker, facts in session.items()
        for fact in facts
    ]
    words = dict.fromkeys(word for speaker, said in observed for word in (speaker, *said))
    # The turns are the first nodes, and the entities follow.
    index = {word: number for number, word in enumerate(words, len(turns))}
    edges = [
        (number, index[word], -1)
        for number, (speaker, text) in enumerate(turns.values())
        for word in dict.fromkeys((speaker, *stems(text)))
        if word in index
    ]
    edges += [
        (index[speaker], index[word], number)
        for number, (speaker, said) in enumerate(observed)
        for word in said
        if word != speaker
    ]
    memory = _memory(name, len(turns), index, edges, [])
    memory.questions += _questions(entry, memory, turns, index)
    return memory


def _memory(
    name: str,
    items: int,
    index: dict[str, int],
    edges: list[tuple[int, int, int]],
    questions: list[Question],
) -> Memory:
    """Return a memory of items, entities, and edges with the number of their fact."""
    size = max([items - 1, *index.values()]) + 1
    source, target, fact = np.array(edges, dtype=np.int32).reshape(-1, 3).T.copy()
    graph = Graph(size, np.arange(items), source, target, np.ones(len(source)))
    return Memory(name, graph, fact, questions)


def _questions(
    entry: dict[str, Json],
    memory: Memory,
    turns: dict[str, tuple[str, str]],
    index: dict[str, int],
) -> Iterator[Question]:
    """Yield the questions of a conversation that name an entity and have evidence in it."""
    vectors = TfidfVectorizer(analyzer=stems, sublinear_tf=True)
    try:
        matrix = vectors.fit_transform([" ".join(turn) for turn in turns.values()])
    except ValueError:
        # No turn has a word.
        return
    items, numbers = memory.graph.items, {turn: number for number, turn in enumerate(turns)}
    for place, asked in enumerate(entry.get("qa") or ()):
        if asked.get("category") == ADVERSARIAL:
            continue
        text = asked["question"]
        named = re.findall(r"D\d+:\d+", " ".join(map(str, asked.get("evidence") or ())))
        evidence = frozenset(numbers[turn] for turn in named if turn in numbers)
        seeds = {n: 1.0 for word in stems(text) if (n := index.get(word))}
        if not evidence or not seeds:
            continue
        dense = (matrix @ vectors.transform([text]).T).toarray()[:, 0]
        rarity = np.zeros(memory.graph.size)
        rarity[list(seeds)] = 1 / (1 + memory.spread[list(seeds)])
        shared = memory.counted(rarity)[items]
        lists = tuple(tuple(items[_best(scores)].tolist()) for scores in (dense, shared))
        yield Question(f"{memory.name}/{place}", Recall(seeds, lists), evidence)


def _best(scores: np.ndarray) -> np.ndarray:
    """Return the places of the greatest scores, none of zero."""
    order = np.argsort(-scores, kind="stable")[:POOL]
    return order[scores[order] > 0]


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
    count = len(entries)
    # The passages are the first nodes, their titles the next, and other names follow.
    bare = (re.sub(r"\s*\(.*?\)", "", entry["title"]) for entry in entries)
    titles = {tuple(_TOKEN.findall(title)): number for number, title in enumerate(bare)}
    index = {entry["title"]: count + number for number, entry in enumerate(entries)}
    edges = [(number, count + number, -1) for number in range(count)]
    mentioned: list[list[int]] = []
    fact = 0
    for number, entry in enumerate(entries):
        named = [other for other in _titles_in(entry["text"], titles) if other != number]
        mentioned.append(named)
        names = dict.fromkeys(_NAME.findall(entry["text"])[:12])
        others = [index.setdefault(name, count + len(index)) for name in names]
        for one in dict.fromkeys([*(count + other for other in named), *others]):
            edges.append((number, one, -1))
            if one != count + number:
                edges.append((count + number, one, fact))
            fact += 1
    chains = [
        (a, b, c)
        for a in range(count)
        for b in mentioned[a]
        for c in mentioned[b]
        if c not in {a, b}
    ]
    questions: dict[int, Question] = {}
    for place in np.random.default_rng(0).permutation(len(chains)).tolist():
        a, b, c = chains[place]
        if len(questions) < limit and b not in questions:
            recall = Recall({count + a: 1.0, count + c: 1.0}, without=frozenset((a, c)))
            questions[b] = Question(f"2wiki/{b}", recall, frozenset((b,)))
    return _memory("2wiki", count, index, edges, list(questions.values()))


def _titles_in(text: str, titles: dict[tuple[str, ...], int]) -> list[int]:
    """Return the numbers of the titles that a text names, the longest at each word."""
    words = tuple(_TOKEN.findall(text))
    found: dict[int, None] = {}
    at = 0
    while at < len(words):
        lengths = range(min(LONGEST, len(words) - at), 0, -1)
        length = next((one for one in lengths if words[at : at + one] in titles), 0)
        if length:
            found[titles[words[at : at + length]]] = None
        at += max(length, 1)
    return list(found)


def generated(nodes: int, edges: int, seed: int) -> Graph:
    """Return a graph whose degrees follow a power law; a fifth of its nodes are items."""
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
WALK: Final = {"damping": DAMPING, "directed": False, "weights": True}
"""Parameters of the paper's walk."""


def walked(graph: Graph, recall: Recall, parameters: dict[str, Any] = WALK) -> tuple[int, ...]:
    """Return the items that a store would serve which runs igraph's PageRank, best first."""
    directed = parameters["directed"]
    ends = np.column_stack([graph.source, graph.target])
    reset = np.zeros(graph.size)
    reset[list(recall.seeds)] = list(recall.seeds.values())
    scores = igraph.Graph(n=graph.size, edges=ends, directed=directed).personalized_pagerank(
        damping=parameters["damping"],
        directed=directed,
        weights=graph.weight.tolist() if parameters["weights"] else None,
        reset=reset.tolist(),
        implementation="prpack",
    )
    items = np.setdiff1d(graph.items, list(recall.without))
    of_items = np.round(np.asarray(scores)[items], PRECISION)
    return tuple(items[np.lexsort((items, -of_items))[: recall.top]].tolist())
