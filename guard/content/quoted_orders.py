"""Orders that a text speaks of and does not give: quoted, reported, or about something else.  Pure.

A mention stands in quotation marks in a text that discusses such phrases, or in a quotation of
somebody who is named beside it and whom nobody is told to obey.
"""
# ruff: noqa: E501  (a pattern cut into pieces is read by nobody)

from __future__ import annotations

import re
from typing import Final

import re2

from guard.content.injection_signals import MODEL, WHERE
from guard.content.prefilter import is_in

MENTION: Final = 60
"""Characters around a phrase in which the quotation marks of a mention stand."""
_MARKS: Final = "\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb\u201e"
_PREFIXES: Final = "rbfuRBFU"
"""Letters that stand before the quotation mark of a text in a program."""
_REPORTED: Final = re.compile(
    r"(?i)\b(?:if|when(?:ever)?|should)\b[^.!?\n]{1,60}\b(?:tells?|asks?|instructs?|orders?|wants?)"
    r"\s+(?:you|them|us|(?:the|an?|any|your)\s+\w+)\s+to\s+$"
)
"""What comes before an order that somebody might give: it is spoken of, and not given."""
_RELATED: Final = re.compile(
    r"(?i)\b\w+,?\s+(?:which|that)\s+(?:tells?|asks?|instructs?|orders?)\s+(?:the|an?)\s+(?:\w+\s+)?\w+\s+to\s+$"
)
"""What an attack is said to ask of a model."""
_REPORT: Final = 120
"""Characters before a phrase in which it is said who might give the order."""
_ATTRIBUTED: Final = re.compile(
    r"(?i)(?<!\w)(?:said|says?|saying|cried|wrote|writes?|asked|replied|reads?|put|pastes?|pasted|contain(?:s|ed|ing)?|stat(?:es|ed|ing)"
    r"|whispered|murmured|shouted|answered|told me|(?:texts?|strings?|patterns?|inputs?|prompts?) (?:like|such as)|called|titled|stand|stehe?t"
    r"|(?:be|been|was|were|is|are) told|sentences?|phrases?|words?|lines?|paragraph|article|detector flags?|obeyed|translat\w+"
    r"|heißt|schreib(?:t|en)|schrieb(?:en)?|sagte?n?|Satz|Sätze|Übersetzung|écri(?:t|vent)|dit|phrase|escriben?|dice|frase)"
    r"(?: about| like| of| the| a| den Satz)?[\s:,\u2014-]*$"
)
"""Who is quoted, or that something is, right before the quotation mark."""
_LIMITED: Final = re.compile(
    r"(?i)^\w*\s+(?:(?:about|regarding|concerning|on)\s+(?:the |our |your )?|(?:given|issued|sent) by (?:the |our )?)"
    r"(?!(?:\w+\s)?(?:safety|security|priva\w+|confiden\w+|secre\w+|tools?|users?|system|developers?|operators?|roles?|rules?|instruct\w+|prompts?|how|what|when|whether|you|it|this|that|all|any)\b)[a-z]{3,}"
)
"""What instructions are about, or whose they were, right behind them: none of a model's own."""
_ATTRIBUTED_AFTER: Final = re.compile(
    r"(?i)^[,.;]?\s+(?:(?:it|he|she|they|one|the \w+)\s+(?:said|reads?|says|cried|wrote|asked|whispered|murmured|shouted|answered|replied)|cried|said|heißt|even inside|in (?:an?|the) |(?:und |and )?(?:is|ist|est|es) (?:an?|eine?|une?)\b)"
    r"|^,?\s*\"?(?:expect\w*|label|verdict|should_\w+|blocked)\"?\s*:"
)
_LIMIT: Final = 80
_GATED: Final = re2.compile(rf"(?i)\b{MODEL}\b|{WHERE}")
"""Whom else instructions may be of, and where something may be sent."""
_OWN_VOICE: Final = re.compile(
    r"(?i)\b(?:system|admin\w*|operators?|developers?|users?|owners?|assistants?|agents?|models?|humans?|you|i|we)\b[\s\w]{0,12}$"
)
"""Whose words a model may take for its orders: they are no quotation to it."""
_OBEYED: Final = re.compile(
    r"(?i)\b(?:do|follow|obey|heed|execute|comply with|act on|carry (?:it )?out|apply|perform)\b[^.\n]{0,20}\b(?:it|this|that|them|what|says?|sentence|line|instructions?|request|tut|tun)\b"
)
_TOLD: Final = re2.compile(rf"(?i){WHERE}|/etc/|\.ssh|\.env\b|\b[a-z]+_[a-z]+\b")
"""What a quoted order could be carried out with: where to, which file, which tool."""
_QUOTATION: Final = 240
"""Characters of an order that is quoted, on each side of the phrase."""


def is_spoken_of(text: str, start: int, end: int, *, discussed: bool) -> bool:
    """Return whether an order at a place of a text is spoken of, and not given.

    Args:
        text: as a model reads it.
        start: of the order.
        end: of the order.
        discussed: whether the text discusses wordings.
    """
    return (
        (discussed and _is_mention(text, start, end))
        or _is_reported(text, start)
        or _is_attributed(text, start)
        or (_LIMITED.search(text[end : end + _LIMIT]) is not None and not is_in(_GATED, text))
    )


def _is_reported(text: str, start: int) -> bool:
    """Return whether the order at a place is one that somebody might give."""
    before = text[max(0, start - _REPORT) : start]
    return _REPORTED.search(before) is not None or (
        _RELATED.search(before) is not None and not is_in(_TOLD, text[start : start + _REPORT])
    )


def _is_attributed(text: str, start: int) -> bool:
    """Return whether the phrase at a place is in a quotation of somebody, who is not to be obeyed.

    The text goes on around it, says whose words they are, and the words name nothing to act with.
    """
    before, after = text[max(0, start - _QUOTATION) : start], text[start : start + _QUOTATION]
    opens = next((at for at in reversed(range(len(before))) if before[at] in _MARKS), None)
    closes = next(
        (at for at in range(1, len(after)) if after[at] in _MARKS and _closes(after, at)), None
    )
    if opens is None or closes is None or not _opens(before + after, opens):
        return False
    said = before[opens + 1 :] + after[:closes]
    head, tail = before[:opens], after[closes + 1 : closes + 40]
    by = _ATTRIBUTED.search(head)
    if by is None and _ATTRIBUTED_AFTER.search(tail) is None:
        return False
    speaker = head[: by.start()] if by is not None else ""
    rest = text[: max(0, start - len(said))] + text[start + closes :]
    return not (_OWN_VOICE.search(speaker) or is_in(_TOLD, said) or _OBEYED.search(rest))


def _is_mention(text: str, start: int, end: int) -> bool:
    """Return whether the place is inside quotation marks that open and close around it."""
    line = max(text.rfind("\n", 0, start), start - MENTION)
    before = text[line + 1 : start + 1]
    stop = text.find("\n", end)
    after = text[end : min(end + MENTION, stop if stop >= 0 else len(text))]
    opened = sum(_opens(before, place) for place, mark in enumerate(before) if mark in _MARKS)
    closed = sum(_closes(after, place) for place, mark in enumerate(after) if mark in _MARKS)
    return opened > 0 and closed > 0 and _last_opens(before)


def _opens(text: str, place: int) -> bool:
    before = text[max(0, place - 2) : place]
    if before[-1:] in _PREFIXES:
        before = before[:-1]
    return not before[-1:].isalnum() and text[place + 1 : place + 2].isalnum()


def _closes(text: str, place: int) -> bool:
    return not text[place + 1 : place + 2].isalnum()


def _last_opens(before: str) -> bool:
    """Return whether the last quotation mark before a place is one that opens."""
    places = [place for place, mark in enumerate(before) if mark in _MARKS]
    return bool(places) and _opens(before, places[-1])
