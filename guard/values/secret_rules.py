"""Rules that find secrets by form and context, from public rule sets.  Pure: no I/O but its data.

The rules of gitleaks (``gitleaks.toml`` beside this module, MIT) are read here. Each has keywords:
one pass over a text for all keywords says which expressions run. A rule with a threshold of entropy
has a context that names the secret. Every expression runs in RE2, in linear time.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import re2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SECRET: Final = "secret_found"  # noqa: S105  (a reason code)
_END: Final = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
_ANY_END: Final = r"""(?:[\x60'"\s;<&,)\]}|!?:.]|\\[nr]|$)"""
"""End of a token in source code, which gitleaks reads, and in a message or a URL as well."""
_BEFORE: Final = re2.compile(r"[A-Za-z0-9_+/-]*$")
_AFTER: Final = re2.compile(r"^[A-Za-z0-9_+/=~-]*")
_BEFORE_LIMIT: Final = 64
_AFTER_LIMIT: Final = 4096
_SHORTEST_GROUP: Final = 8
"""Characters; a shorter group is a part of the form, such as a prefix."""
_END_OF_KEY: Final = re2.compile(r"-----END [^\n-]*-----")
PRIVATE_KEY: Final = "private_key"
"""Kind whose rule may match the head of a key alone: the key reaches to its end marker."""


def entropy(text: str) -> float:
    """Return the bits per character of a text."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts)


_compiled: Final = cache(re2.compile)
"""Compiles an expression when a keyword of it occurs first."""


@dataclass(frozen=True, slots=True)
class SecretRule:
    """One form of a secret."""

    kind: str
    pattern: str
    """RE2; the secret is its longest group, or the whole match where all groups are short."""
    keywords: tuple[str, ...] = ()
    """Words in lower case, one of which is in every text that the pattern matches."""
    entropy: float = 0.0
    """Minimum bits per character of the secret."""
    confirms: Callable[[re2._Match, str], bool] | None = None
    """Predicate over a match and its secret that decides as well."""


class SecretRules:
    """A set of rules with a common prefilter.

    Args:
        rules: any number.

    Raises:
        ValueError: RE2 does not compile a pattern.
    """

    def __init__(self, rules: Iterable[SecretRule]) -> None:
        self._rules = tuple(rules)
        self._keywords: list[int] = []
        self._filter = re2.Set.SearchSet()
        for number, rule in enumerate(self._rules):
            # A rule without keywords is its own filter.
            for word in map(re2.escape, rule.keywords):
                self._add(number, rule, f"(?i:{word})")
            if not rule.keywords:
                self._add(number, rule, rule.pattern)
        self._filter.Compile()

    def _add(self, number: int, rule: SecretRule, expression: str) -> None:
        try:
            self._filter.Add(expression)
        except re2.error as error:
            raise ValueError(f"rule `{rule.kind}` is not an RE2 expression") from error
        self._keywords.append(number)

    def spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield start, end and kind of every secret, widened to the token that contains it."""
        for number in sorted({self._keywords[at] for at in self._filter.Match(text) or ()}):
            rule = self._rules[number]
            for match in _compiled(rule.pattern).finditer(text):
                start, end = _secret(match)
                secret = text[start:end]
                if rule.entropy and entropy(secret) <= rule.entropy:
                    continue
                if rule.confirms is None or rule.confirms(match, secret):
                    yield *_token(text, start, end, rule.kind), rule.kind


def _secret(match: re2._Match) -> tuple[int, int]:
    spans: list[tuple[int, int]] = [match.span(group) for group in range(match.re.groups + 1)]
    longest = max(spans[1:], key=lambda span: span[1] - span[0], default=spans[0])
    return longest if longest[1] - longest[0] >= _SHORTEST_GROUP else spans[0]


def _token(text: str, start: int, end: int, kind: str) -> tuple[int, int]:
    """Return the span of the token that contains a secret: nothing of it stays readable."""
    if kind == PRIVATE_KEY:
        tail = _END_OF_KEY.search(text, end)
        return start, max(end, tail.end() if tail is not None else len(text))
    before = _BEFORE.search(text[max(start - _BEFORE_LIMIT, 0) : start])
    after = _AFTER.search(text[end : end + _AFTER_LIMIT])
    return start - len(before[0]), end + len(after[0])


@lru_cache(maxsize=1)
def gitleaks_rules() -> tuple[SecretRule, ...]:
    """Return the rules of gitleaks that need no file name."""
    text = files("guard.values").joinpath("gitleaks.toml").read_text("utf-8")
    document = tomllib.loads(text)
    shared = [_exempts(document["allowlist"])]
    return tuple(
        _rule_of(entry, shared)
        for entry in document["rules"]
        if "regex" in entry and "path" not in entry
    )


@lru_cache(maxsize=1)
def content_rules() -> SecretRules:
    """Return these rules alone, ready to search."""
    return SecretRules(gitleaks_rules())


def clear_secrets(text: str) -> Iterator[str]:
    """Yield the secrets that a text contains in clear."""
    for start, end, _ in content_rules().spans(text):
        yield text[start:end]


def _rule_of(entry: dict[str, Any], shared: list[Callable[[re2._Match, str], bool]]) -> SecretRule:
    exemptions = [*shared, *map(_exempts, filter(_reads_text, entry.get("allowlists", ())))]
    return SecretRule(
        entry["id"],
        entry["regex"].replace(_END, _ANY_END),
        tuple(entry["keywords"]),
        float(entry.get("entropy", 0)),
        lambda match, secret: not any(exempts(match, secret) for exempts in exemptions),
    )


def _reads_text(allowlist: dict[str, Any]) -> bool:
    """Return whether an exemption depends on the text alone, not on the name of a file."""
    return "paths" not in allowlist or allowlist.get("condition") == "OR"


def _exempts(allowlist: dict[str, Any]) -> Callable[[re2._Match, str], bool]:
    """Return the predicate of an exemption: an expression or a word that marks no secret."""
    patterns = [re2.compile(one) for one in allowlist.get("regexes", ())]
    words = [word.lower() for word in allowlist.get("stopwords", ())]
    target = allowlist.get("regexTarget", "secret")

    def exempts(match: re2._Match, secret: str) -> bool:
        text = {"match": match.group, "line": lambda: _line(match)}.get(target, lambda: secret)()
        lower = secret.lower()
        return any(one.search(text) for one in patterns) or any(word in lower for word in words)

    return exempts


def _line(match: re2._Match) -> str:
    start = match.string.rfind("\n", 0, match.start()) + 1
    end = match.string.find("\n", match.end())
    return str(match.string[start : end if end >= 0 else None])
