"""Secrets in what a call sends, by the rule set of detect-secrets, in any coding.

The rule set is Yelp's (https://github.com/Yelp/detect-secrets), kept by them; its expressions are
run by RE2, so that no text can make them slow, and what they find is confirmed by the plug-in they
come from.  :data:`guard.content.secret_forms.OWN_FORMS` completes it.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import unquote

from guard.content.decoder import content_readings
from guard.content.example_secrets import without_examples
from guard.content.fragment_joining import deobfuscated, joined, members
from guard.content.leak_patterns import SECRET
from guard.content.letters import fold
from guard.content.own_codings import respelt, turned
from guard.content.secret_forms import (
    OWN_FORMS,
    SecretForm,
    SecretForms,
    without_invitations,
    without_signers,
)
from guard.core.argument_texts import ArgumentText, argument_texts
from guard.core.json_values import strings_in_order
from guard.core.model import Finding, Span
from guard.detectors import DetectorPlugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType
    from typing import Self

    from detect_secrets.plugins.base import RegexBasedDetector

    from guard.core.calls import ClassifiedCall
    from guard.core.model import Json
    from guard.core.trajectory import Snapshot
    from guard.detectors import DetectorResources

TEXT_LIMIT: Final = 256 * 1024
"""Characters looked through per call; the rule type ``content`` refuses what is larger."""
SPAN_LIMIT: Final = 1000
"""Secrets of one call that are told apart."""
CONFIRMED: Final = 4096
"""Characters of a candidate that a plug-in confirms; a longer one needs no confirmation."""
RESPELT: Final = 64 * 1024
"""Characters of a call that are read in codings of one's own."""
_LEFT_OUT: Final = frozenset({"basic_auth", "ip_public", "private_key", "twilio"})
"""Plug-ins that find no secret, or not the whole of it and no more, as :data:`OWN_FORMS` does."""
_TELLING: Final = frozenset(
    {
        "aws_key_id",
        "github_token",
        "gitlab_token",
        "slack_token",
        "stripe_key",
        "google_key",
        "google_token",
        "sendgrid_key",
        "project_key",
        "pypi_token",
        "registry_token",
        "hub_token",
        "telegram_token",
        "vault_token",
        "doppler_token",
        "age_key",
        "private_key",
        "jwt",
    }
)
"""Forms whose beginning is no part of other texts, wherever those meet."""
_LONG_WORD: Final = re.compile(r"[A-Za-z0-9+/=%]{24}")
"""What a coding of a secret that is written backwards has."""
_NOT_AROUND: Final = re.compile(r"\(\?<?![^()]*\)")
_TRANSLATED: Final = ((r"(?:(?<=\W)|(?<=^))", r"(?:^|\W)"), (r"{50,1024}", r"{50,}"))
"""What RE2 does not know; what stands for it, and its absence, find at least as much."""


class Secrets(DetectorPlugin):
    """Finds tokens, keys and passwords in the arguments of a call."""

    name: ClassVar[str] = "secrets"
    codes: ClassVar[frozenset[str]] = frozenset({SECRET})
    reads_arguments: ClassVar[bool] = True

    @classmethod
    def create(cls, resources: DetectorResources) -> Self:
        """Return the detector; its rule set is read when a policy first asks for it."""
        del resources
        return cls()

    def prepare(self) -> None:
        """Read the rule set."""
        forms()

    def inspect(self, call: ClassifiedCall, snapshot: Snapshot) -> Sequence[Finding]:  # noqa: ARG002  (looks at the call alone)
        """Return one finding for everything found, with where it stands in clear text."""
        kinds, spans, hidden = secrets_in(dict(call.call.arguments))
        if not kinds:
            return ()
        detail = f"the arguments have {', '.join(list(kinds)[:5])}"
        data = {"kinds": list(kinds), "count": len(spans), "hidden": hidden}
        return (Finding(self.name, SECRET, None, detail, data, tuple(spans[:SPAN_LIMIT])),)


def secrets_in(arguments: dict[str, Json]) -> tuple[dict[str, None], list[Span], bool]:
    """Return the kinds of secrets in arguments, where they stand, and whether any is hidden."""
    kinds: dict[str, None] = {}
    spans: list[Span] = []
    hidden = False
    room = TEXT_LIMIT
    arguments = without_examples(arguments)
    for text in chain(argument_texts(arguments), _cookie_jars(arguments)):
        room -= len(text.text)
        if room < 0:
            break
        plain, coded = found_in(text)
        kinds.update(dict.fromkeys((*(span.kind for span in plain), *coded)))
        spans += plain if text.path else ()
        hidden = hidden or bool(coded) or (bool(plain) and not text.path)
    if not kinds:
        kinds.update(dict.fromkeys(_in_pieces(arguments)))
        hidden = bool(kinds)
    return kinds, spans, hidden


def _cookie_jars(arguments: Json) -> Iterator[ArgumentText]:
    """Yield lists of cookies as one text: what a value is, those beside it say."""
    stack = [arguments]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack += item
        elif isinstance(item, dict):
            stack += item.values()
            if isinstance(jar := item.get("cookies"), list):
                yield ArgumentText((), json.dumps({"cookies": jar}))


def _in_pieces(arguments: Json) -> Iterator[str]:
    """Yield the kinds of secrets that come out where values are joined, turned or tidied."""
    known = telling_forms()
    room = RESPELT
    leaves = [without_signers(without_invitations(leaf)) for leaf in strings_in_order(arguments)]
    for text in joined([*leaves]):
        yield from (kind for _, _, kind in known.spans(text))
        room -= len(text)
        if room >= 0:
            yield from _respelt(text)
    for leaf in leaves:
        for text in deobfuscated(leaf):
            yield from (kind for _, _, kind in known.spans(text))
        for text in (leaf, *members(leaf)):
            room -= len(text)
            if room < 0:
                break
            yield from _respelt(text)
            yield from (kind for _, _, kind in named_forms().spans(text[::-1]))
            if not text.isascii():
                yield from _respelt(fold(text))
        if len(leaf) <= CONFIRMED and _LONG_WORD.search(leaf):
            backwards = "\n".join(content_readings(unquote(leaf)[::-1]).texts)
            yield from (kind for _, _, kind in known.spans(backwards))


@lru_cache(maxsize=1)
def named_forms() -> SecretForms:
    """Return the forms that a word names, which no other word becomes when it is turned."""
    return SecretForms(form for form in OWN_FORMS if form.kind == "password")


def _respelt(text: str) -> Iterator[str]:
    """Yield the kinds of secrets in a text that is read in a coding of one's own."""
    known = telling_forms()
    text = without_signers(text)
    for spelt in respelt(text):
        read = "\n".join(content_readings(spelt).texts)
        yield from (kind for _, _, kind in forms().spans(read))
        yield from (kind for _, _, kind in known.spans("\n".join(deobfuscated(spelt))))
        yield from (kind for _, _, kind in turned_forms().spans("\n".join(turned(spelt))))
    # One search for all of them, as above.
    others = "\n".join(turned(text))
    for looked_for in (turned_forms(), named_forms()):
        yield from (kind for _, _, kind in looked_for.spans(others))


@lru_cache(maxsize=1)
def telling_forms() -> SecretForms:
    """Return the forms that begin with what nothing else begins with."""
    return SecretForms(form for form in OWN_FORMS if form.kind in _TELLING)


@lru_cache(maxsize=1)
def turned_forms() -> SecretForms:
    """Return those of them whose beginning others do not become by chance when letters turn.

    Two letters are those of some other word's under one of 25 keys (`ca_` of Stripe's clients).
    """
    kinds = _TELLING - {"hub_token"}
    return SecretForms(form for form in OWN_FORMS if form.kind in kinds)


def found_in(text: ArgumentText) -> tuple[tuple[Span, ...], tuple[str, ...]]:
    """Return the secrets of one text that stand there in clear, and the kinds of those that do not.

    A secret in a reading of the text counts as hidden where the text itself shows none of its kind.
    """
    known = forms()
    shift = len(text.named) - len(text.text)
    plain = tuple(
        Span(text.path, max(start - shift, 0), end - shift, kind)
        for start, end, kind in known.spans(text.named)
        if end > shift
    )
    shown = {span.kind for span in plain}
    # One search for all of them: a long text can have thousands of short readings.
    readings = "\n".join(content_readings(text.named).texts[1:])
    coded = dict.fromkeys(kind for _, _, kind in known.spans(readings) if kind not in shown)
    return plain, tuple(coded)


@lru_cache(maxsize=1)
def forms() -> SecretForms:
    """Return every form that is searched for.

    Raises:
        ValueError: the rule set has an expression that cannot be translated.
    """
    return SecretForms((*OWN_FORMS, *_rule_set()))


def _rule_set() -> Iterator[SecretForm]:
    """Yield the forms of detect-secrets; it takes half a second to import, so only on demand."""
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
            yield from _forms_of(info.name, plugin())


def _forms_of(kind: str, plugin: RegexBasedDetector) -> Iterator[SecretForm]:
    for expression in plugin.denylist:
        pattern = _NOT_AROUND.sub("", expression.pattern)
        for theirs, ours in _TRANSLATED:
            pattern = pattern.replace(theirs, ours)
        flags = "(?i)" if expression.flags & re.IGNORECASE else ""
        yield SecretForm(kind, f"{flags}(?:{pattern})", _confirmed_by(plugin))


def _confirmed_by(plugin: RegexBasedDetector) -> Callable[[str], bool]:
    def confirms(candidate: str) -> bool:
        if len(candidate) > CONFIRMED:
            return True
        word = candidate.strip(' \t\r\n"=:')
        written = word.isalpha() and (word.islower() or word.isupper())
        return not written and any(True for _ in plugin.analyze_string(candidate))

    return confirms
