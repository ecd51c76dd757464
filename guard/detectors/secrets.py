"""Secrets in the arguments of a call, by public rule sets, in every coding that is understood.

The rules are those of detect-secrets (https://github.com/Yelp/detect-secrets) and of gitleaks
(:mod:`guard.values.secret_rules`). RE2 runs their expressions, so that no text can make them slow.
A plug-in of detect-secrets confirms each match of its expressions.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from guard.core.argument_texts import ArgumentText, argument_texts
from guard.core.model import Finding, Json, Span
from guard.detectors import DetectorPlugin, DetectorResources
from guard.values.decoder import content_readings
from guard.values.secret_rules import SECRET, SecretRule, SecretRules, gitleaks_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    import re2
    from detect_secrets.plugins.base import RegexBasedDetector

    from guard.core.calls import ClassifiedCall
    from guard.core.trajectory import Snapshot

TEXT_LIMIT: Final = 256 * 1024
"""Maximum characters searched per call; the rule type ``content`` refuses a larger one."""
SPAN_LIMIT: Final = 1000
"""Maximum number of secrets of one call that are reported one by one."""
CONFIRMED: Final = 4096
"""Maximum characters of a match that a plug-in confirms; a longer one counts as confirmed."""
_LEFT_OUT: Final = frozenset({"artifactory", "ip_public", "twilio"})
"""Plug-ins whose matches are identifiers; gitleaks has stricter rules for two of them."""
_LOOK_BEHIND: Final = re.compile(r"\(\?<?![^()]*\)")
_TRANSLATED: Final = ((r"(?:(?<=\W)|(?<=^))", r"(?:^|\W)"), (r"{50,1024}", r"{50,}"))
"""Syntax unknown to RE2, and a replacement that matches at least as much."""


class Secrets(DetectorPlugin):
    """Detector of tokens, keys and passwords in the arguments of a call."""

    name: ClassVar[str] = "secrets"
    codes: ClassVar[frozenset[str]] = frozenset({SECRET})
    reads_arguments: ClassVar[bool] = True

    @classmethod
    def create(cls, resources: DetectorResources) -> Self:
        """Return the detector; it reads its rules when a policy first needs them."""
        return cls()

    def prepare(self) -> None:
        """Read the rules."""
        secret_rules()

    def inspect(self, call: ClassifiedCall, snapshot: Snapshot) -> Sequence[Finding]:
        """Return one finding for all secrets, with the spans of those in clear text."""
        kinds, spans, hidden = secrets_in(dict(call.call.arguments))
        if not kinds:
            return ()
        detail = f"the arguments have {', '.join(list(kinds)[:5])}"
        data = {"kinds": list(kinds), "count": len(spans), "hidden": hidden}
        return (Finding(self.name, SECRET, None, detail, data, tuple(spans[:SPAN_LIMIT])),)


def secrets_in(arguments: dict[str, Json]) -> tuple[dict[str, None], list[Span], bool]:
    """Return the kinds of secrets in arguments, their spans, and whether one has no span."""
    kinds: dict[str, None] = {}
    spans: list[Span] = []
    hidden = False
    room = TEXT_LIMIT
    for text in argument_texts(arguments):
        room -= len(text.text)
        if room < 0:
            break
        plain, coded = found_in(text)
        kinds.update(dict.fromkeys((*(span.kind for span in plain), *coded)))
        spans += plain if text.path else ()
        hidden = hidden or bool(coded) or (bool(plain) and not text.path)
    return kinds, spans, hidden


def found_in(text: ArgumentText) -> tuple[tuple[Span, ...], tuple[str, ...]]:
    """Return the secrets that one text has in clear, and the kinds that only its readings have."""
    rules = secret_rules()
    shift = len(text.named) - len(text.text)
    plain = tuple(
        Span(text.path, max(start - shift, 0), end - shift, kind)
        for start, end, kind in rules.spans(text.named)
        if end > shift
    )
    shown = {span.kind for span in plain}
    # One search for all readings: a long text can have thousands of short ones.
    readings = "\n".join(content_readings(text.named).texts[1:])
    coded = dict.fromkeys(kind for _, _, kind in rules.spans(readings) if kind not in shown)
    return plain, tuple(coded)


@lru_cache(maxsize=1)
def secret_rules() -> SecretRules:
    """Return all rules.

    Raises:
        ValueError: an expression cannot be translated to RE2.
    """
    return SecretRules((*_detect_secrets_rules(), *gitleaks_rules()))


def _detect_secrets_rules() -> Iterator[SecretRule]:
    """Yield the rules of detect-secrets; its import takes half a second, hence on demand."""
    package: ModuleType = importlib.import_module("detect_secrets.plugins")
    base: Any = importlib.import_module("detect_secrets.plugins.base")
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        if info.name in _LEFT_OUT:
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        plugins: list[Any] = [
            value
            for value in vars(module).values()
            if inspect.isclass(value)
            and issubclass(value, base.RegexBasedDetector)
            and value.__module__ == module.__name__
            and not inspect.isabstract(value)
        ]
        for plugin in plugins:
            yield from _rules_of(info.name, plugin())


def _rules_of(kind: str, plugin: RegexBasedDetector) -> Iterator[SecretRule]:
    for expression in plugin.denylist:
        pattern = _LOOK_BEHIND.sub("", expression.pattern)
        for theirs, ours in _TRANSLATED:
            pattern = pattern.replace(theirs, ours)
        flags = "(?i)" if expression.flags & re.IGNORECASE else ""
        yield SecretRule(kind, f"{flags}(?:{pattern})", confirms=_confirmed_by(plugin))


def _confirmed_by(plugin: RegexBasedDetector) -> Callable[[re2._Match, str], bool]:
    """Return the predicate that a plug-in finds a secret in a match, not a placeholder."""
    heuristics: Any = importlib.import_module("detect_secrets.filters.heuristic")

    def confirms(match: re2._Match, secret: str) -> bool:
        candidate = match[0]
        if len(candidate) > CONFIRMED:
            return True
        word = secret.strip(' \t\r\n"=:')
        written = word.isalpha() and (word.islower() or word.isupper())
        if not word or written or heuristics.is_templated_secret(word):
            return False
        return any(True for _ in plugin.analyze_string(candidate))

    return confirms
