"""From a classified save, or a result that proposes one, to a candidate.  Pure: no I/O.

What a save's text is made of is what the wire shows, never what the agent says of itself: labels of
the values in the text, and what the session and its principal have read; the worse counts.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guard.core.calls import (
    ClassifiedCall,
    TracedCall,
    further_texts,
    hidden_paths,
    texts_at,
    without_members,
    written_document,
)
from guard.core.json_values import scalars_in, strings_in_order
from guard.core.memory import NO_EVIDENCE, Candidate, MemoryClass, SourceEvidence, SourceType
from guard.core.model import Integrity, Json, Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.core.mappings import MemoryLimits, PathQuery, ProposalMapping, WriteMapping
    from guard.core.policy import Policy
    from guard.core.trajectory import Snapshot, Window

ID_LIMIT: Final = 512
"""Characters of a key, partition or nonce that are told apart; longer ones are refused."""
KEYS: Final = 1024
"""Items of one write; one with more is refused."""
PROPOSALS: Final = 64
"""Updates that one result may propose; with more, the result is withheld whole."""


def candidate_of_call(
    classified: ClassifiedCall,
    mapping: WriteMapping,
    evidence: SourceEvidence,
    limits: MemoryLimits,
) -> Candidate:
    """Return the candidate of a call that writes memory.

    A nonce comes from the argument the mapping names, else from the ``X-Guard-Nonce`` header, else
    it is the call's own id, which is never used twice.
    """
    call = classified.call
    document = written_document(call)
    hidden = hidden_paths(mapping, document)
    content = canonical(without_members(document, hidden))
    asked, problems = _target(mapping.target_path, mapping.target, document)
    texts = tuple(texts_at(mapping.content, document, hidden))
    if not (texts or mapping.pattern or mapping.content):
        texts = (content,)  # Without an entry all arguments are its text, numbers too.
    further = tuple(further_texts(call, mapping))
    keys = _each(mapping.key, document)
    problems += _size_problems(content, texts, limits, further)
    if len(keys) > KEYS or len(_each(mapping.partition, document)) > 1:
        problems += ("candidate_oversize",)
    digest = content_digest(call.tool, content)
    return Candidate(
        id=call.id,
        identity=call.identity,
        tool=call.tool,
        store=classified.saves_to,
        partition=_one(mapping.partition, document) or "default",
        keys=keys or (digest,),
        target=asked,
        fallback=mapping.fallback,
        texts=texts,
        content=content,
        digest=digest,
        text_digest=text_digest(texts),
        nonce=_one(mapping.nonce, document) or call.nonce or call.id,
        token=_one(mapping.token, document) or call.token,
        evidence=evidence,
        server=call.server,
        further=further,
        problems=problems,
    )


def candidates_of_result(
    classified: ClassifiedCall,
    mapping: ProposalMapping,
    content: Json,
    evidence: SourceEvidence,
    limits: MemoryLimits,
) -> list[Candidate]:
    """Return the updates that a tool's result proposes."""
    found: list[Candidate] = []
    for document in _documents(content):
        for _, update in mapping.updates.find(document):
            found.append(_proposed(classified, mapping, update, evidence, limits, len(found)))
            if len(found) > PROPOSALS:
                return found
    return found


def _proposed(
    classified: ClassifiedCall,
    mapping: ProposalMapping,
    update: Json,
    evidence: SourceEvidence,
    limits: MemoryLimits,
    number: int,
) -> Candidate:
    asked, problems = _target(mapping.target_path, mapping.target, update)
    texts = tuple(texts_at((mapping.content,), update, set()))
    content = canonical(list(texts))
    return Candidate(
        id=f"{classified.call.id}.{number}",
        identity=classified.call.identity,
        tool=classified.call.tool,
        store=mapping.store,
        partition="default",
        keys=_each(mapping.key, update) or ("",),
        target=asked,
        fallback=None,
        texts=texts,
        content=content,
        digest=content_digest("", content),
        text_digest=text_digest(texts),
        nonce=_one(mapping.nonce, update),
        token="",
        evidence=evidence,
        server=classified.call.server,
        problems=problems + _size_problems(content, texts, limits),
    )


def receipt_of(candidate: Candidate, policy: str) -> str:
    """Return what the audit line and the staged record must agree on."""
    parts = (candidate.id, candidate.digest, candidate.target.name, policy)
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def text_digest(texts: Sequence[str]) -> str:
    """Return the digest of remembered texts alone, as a proposal and the write of it share it."""
    return content_digest("", canonical(list(texts)))


def canonical(value: Json) -> str:
    """Return a JSON value in the one spelling that digests are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def content_digest(tool: str, content: str) -> str:
    """Return the digest that names a content: of the tool and what it is to remember."""
    text = f"{len(tool)}:{tool}{content}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _target(
    query: PathQuery | None, default: MemoryClass, document: Json
) -> tuple[MemoryClass, tuple[str, ...]]:
    values = [value for _, value in query.find(document)] if query is not None else []
    if not values:
        return default, ()
    names = {value if isinstance(value, str) else "" for value in values}
    if len(names) == 1 and (name := names.pop()) in MemoryClass.__members__:
        return MemoryClass[name], ()
    return MemoryClass.L1, ("class_unknown",)


def _size_problems(
    content: str, texts: tuple[str, ...], limits: MemoryLimits, further: tuple[str, ...] = ()
) -> tuple[str, ...]:
    problems: list[str] = []
    if len(content) > limits.max_chars:
        problems.append("candidate_oversize")
    if not any(text.strip() for text in texts) or any(map(_is_binary, (*texts, *further))):
        problems.append("candidate_not_text")
    return tuple(problems)


def _is_binary(text: str) -> bool:
    return "\x00" in text or any("\ud800" <= char <= "\udfff" for char in text)


def _one(query: PathQuery | None, document: Json) -> str:
    """Return the text at a path, several as one."""
    found = _each(query, document)
    return found[0] if len(found) == 1 else _short(canonical([*found])) if found else ""


def _each(query: PathQuery | None, document: Json) -> tuple[str, ...]:
    """Return the texts and numbers at a path and below it, each once, as text.

    INVARIANT (one item, one key): in a list, or as a number, an item has the key that it has alone.
    """
    return tuple(dict.fromkeys(map(_short, named_texts(query, document))))


def named_texts(query: PathQuery | None, document: Json) -> Iterator[str]:
    """Yield the texts and numbers at a path and below it, as text; none that is empty."""
    for _, value in query.find(document) if query is not None else ():
        found = (one if isinstance(one, str) else canonical(one) for one in scalars_in(value))
        yield from filter(None, found)


def _short(text: str) -> str:
    """Return a text, the digest of a long one: it must neither collide nor fill the store."""
    return text if len(text) <= ID_LIMIT else content_digest("key", text)


def _structures(content: Json) -> Iterator[Json]:
    """Yield a result and, where it holds one, its structured content or the result of its task."""
    yield content
    if isinstance(content, dict):
        for name in ("structuredContent", "result"):
            if isinstance(content.get(name), dict):
                yield from _structures(content[name])


def _documents(content: Json) -> Iterator[Json]:
    """Yield what a result says: as it stands, its structured form, each text that is JSON."""
    yield from _structures(content)
    for text in strings_in_order(content):
        stripped = text.strip()
        if stripped[:1] in {"{", "["}:
            try:
                yield json.loads(stripped)
            except (ValueError, RecursionError):
                continue


READS: Final = frozenset({Role.RECALL, Role.LIST, Role.RETRIEVE, Role.OTHER})
"""Roles whose results carry text into the session.  Saves, drafts and sends answer receipts."""
READ_AND_WRITTEN: Final = frozenset({SourceType.MODEL_INFERENCE, SourceType.TOOL_RESULT})
"""Source types of a text that an agent writes after it has read: its inference over a text."""


class LabelledEvidence:
    """Sources of saves by the labels of what the text is made of, and by what was read before.

    Args:
        policy: says which results are untrusted.
    """

    def __init__(self, policy: Policy) -> None:
        untrusted = {
            mapping.role for mapping in policy.tools if mapping.source is Integrity.UNTRUSTED
        }
        # Tools that no mapping claims have role `other`, and their results are untrusted.
        self._tainting = tuple((untrusted | {Role.OTHER}) & READS)

    def evidence(self, call: TracedCall, snapshot: Snapshot) -> SourceEvidence:
        """Return the user's input where the user said all of it, else the worse of the two.

        Where nothing untrusted was read, the text is the agent's own inference: nothing proves
        that the user said it.
        """
        saved = call.saved
        if saved is None:
            return NO_EVIDENCE
        if saved.prompted:
            kinds, label = frozenset({SourceType.USER_INPUT}), saved.label
        elif saved.label is Integrity.UNTRUSTED:
            return replace(
                NO_EVIDENCE,
                types=READ_AND_WRITTEN,
                sources=tuple(sorted(saved.origins)),
                attested=saved.attested,
            )
        elif self._has_read(snapshot.session) or self._has_read(snapshot.principal):
            kinds, label = READ_AND_WRITTEN, Integrity.UNTRUSTED
        else:
            kinds, label = frozenset({SourceType.MODEL_INFERENCE}), Integrity.ADVISORY
        return SourceEvidence(kinds, label, attested=saved.attested)

    def _has_read(self, window: Window) -> bool:
        # Calls in flight count: their results may be in the text already.
        return window.unlabelled > 0 or any(window.possible(role) > 0 for role in self._tainting)
