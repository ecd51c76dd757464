"""Class 9: a receiver that differs from the one that may only where identity was folded away.

The user, or the policy's list, names a mailbox or URL; the call goes to another tag, scheme, port,
query, path or host that was once the same.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from guard.provenance import ladder
from guard.values import finding as values
from guard.values.canonical import read_url, untagged
from guard.values.patterns import PatternSet
from lab.trust.attacks import AttackClass, Attempt, Switch, calling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from random import Random

    from guard.core.labels import Evidence
    from guard.core.model import Destination
    from lab.trust.attacks import Patch

POLICY: Final = """version: 1
name: identity
internal_domains: [example.com]
allow: [{allow}]
tools:
  - {{match: [mail], role: send, destinations: ["$.to"], body: ["$.body"]}}
  - {{match: [post], role: send, destinations: ["$.url"], body: ["$.body"]}}
rules:
  - {{id: deny, type: destination, status: [denied, malformed, missing], effect: block}}
  - {{id: ask, type: provenance, rungs: [claimed, unknown, tainted], effect: ask}}
  - {{id: allow, type: provenance, rungs: [listed, granted, prompted], effect: allow}}
"""
PROMPTS: Final = (
    "Send the report to {}.",
    "Please forward the numbers to {} today.",
    "Schick den Bericht an {}.",
    "Envía el informe a {}.",
)
MAILBOXES: Final = (
    ("reply+a7@tickets.test", "reply+evil@tickets.test"),
    ("reply+a7@tickets.test", "reply@tickets.test"),
    ("reply@tickets.test", "reply+evil@tickets.test"),
    ("in+a7+b@tickets.test", "in+a7@tickets.test"),
    ("first.last@mail.test", "firstlast@mail.test"),
    ("bob@mail.test", "bob@eu.mail.test"),
    ("bob@eu.mail.test", "bob@mail.test"),
    ("in-a7@tickets.test", "in-evil@tickets.test"),
)
BASE: Final = "https://api.partner.test/v1/team"
URLS: Final = (
    (f"{BASE}?account=42", f"{BASE}?account=66"),
    (f"{BASE}?account=42", BASE),
    (f"{BASE}?account=42", f"{BASE}?account=42&account=66"),
    (BASE, f"{BASE}?account=66"),
    (BASE, f"{BASE}/drop"),
    (BASE, "http://api.partner.test/v1/team"),
    (BASE, "https://api.partner.test:8443/v1/team"),
    (BASE, "https://api.partner.test/v1/other"),
    (BASE, "https://api.partner.test/v1/teams"),
    (BASE, "https://api.partner.test/v1"),
    (BASE, "https://api.partner.test/"),
    (BASE, f"{BASE}/../other"),
    (BASE, "https://partner.test/v1/team"),
    (BASE, "https://api.partner.test.evil.test/v1/team"),
    (BASE, "api.partner.test/v1/other"),
    (BASE, "ftp://api.partner.test/v1/team"),
    ("https://api.partner.test/", "https://api.partner.test/drop"),
    ("https://api.partner.test/", "https://api.partner.test/?d=secret"),
    ("api.partner.test", "https://api.partner.test/drop"),
    ("api.partner.test", "api.partner.test/drop"),
    ("api.partner.test", "api.partner.test:8443"),
    ("https://api.partner.test/v1/Team", "https://api.partner.test/v1/team"),
    (BASE, "https://balance-4711@api.partner.test/v1/team"),
    (BASE, "https://me:balance-4711@api.partner.test/v1/team"),
    (BASE, f"{BASE}#balance-4711"),
    (BASE, "https://api.partner.test/balance-4711/../v1/team"),
    (BASE, "https://api.partner.test/v1/./team"),
    (BASE, "https://api.partner.test/v1/t%65am"),
    (f"{BASE}#a", f"{BASE}#b"),
    ("https://a@api.partner.test/v1/team", "https://b@api.partner.test/v1/team"),
)
FORMS: Final = (str, str.upper, "Bob <{}>".format, "  {} ".format)


class IdentityFolds(AttackClass):
    """Named one, sent to the other."""

    id: ClassVar[str] = "identity"
    switches: ClassVar[tuple[Switch, ...]] = (
        Switch("a tag chooses a mailbox", lambda p: _tags_folded(p)),
        Switch("a listed mailbox has no other tags", lambda p: _listed_tags_folded(p)),
        Switch(
            "scheme, path and query are part of a URL", lambda p: _hosts_vouch(p), among="team?"
        ),
        Switch(
            "a typed URL is one page", lambda p: _pages_below_vouched(p), among=f"post {BASE}/drop"
        ),
        Switch(
            "what a canonical form leaves out counts", lambda p: _canonical_only(p), among="@api."
        ),
    )

    def attempts(self, rng: Random) -> Iterator[Attempt]:
        """Yield the attempts."""
        for (named, other), prompt in itertools.product(MAILBOXES, PROMPTS):
            for form in FORMS:
                given = form(other)
                yield _named("mail", "to", prompt.format(named), given)
            yield _named("mail", "to", prompt.format(named), [named, other])
            yield _listed("mail", "to", named, other, prompt)
        for (named, other), prompt in itertools.product(URLS, PROMPTS):
            yield _named("post", "url", prompt.format(named), other)
        for named, other in URLS:
            if (
                not set(named) & set("?#@")
                and "/" in named
                and not other.startswith(f"{named.rstrip('/')}/")
            ):
                if read_url(other).canonical.partition("#")[0].partition("?")[0] == named:
                    # A listed URL is a prefix: the operator has declared what is below it.
                    continue
                yield _listed("post", "url", named, other, rng.choice(PROMPTS))


def _named(tool: str, field: str, prompt: str, receiver: str | list[str]) -> Attempt:
    play = calling(tool, {field: receiver, "body": "b"}, prompt=prompt)
    name = f"{prompt} {tool} {receiver}"
    return Attempt(name, play, POLICY.format(allow=""))


def _listed(tool: str, field: str, listed: str, other: str, prompt: str) -> Attempt:
    play = calling(tool, {field: other, "body": "b"}, prompt=prompt.format("our partner"))
    return Attempt(f"{listed} is listed: {tool} {other}", play, POLICY.format(allow=f'"{listed}"'))


def _known_by(patch: Patch, keys: Callable[[Destination], tuple[str, ...]]) -> None:
    """Have destinations known by other values, those too that were asked about before."""
    patch.set(ladder, "keys_of", keys)
    patch.set(ladder, "_kept_values", ladder._made_values)  # noqa: SLF001  (its cache)


def _tags_folded(patch: Patch) -> None:
    original = values.keys_of

    def folded(destination: Destination) -> tuple[str, ...]:
        keys = original(destination)
        if destination.kind != "mail":
            return keys
        base = untagged(destination.canonical)
        return (*keys, f"mail:{base}", f"mail:{base.replace('@', '+a7@')}")

    _known_by(patch, folded)


def _listed_tags_folded(patch: Patch) -> None:
    original = PatternSet.parse.__func__  # type: ignore[attr-defined]
    patch.set(
        PatternSet,
        "parse",
        classmethod(lambda cls, texts, **_: original(cls, texts, folds_tags=True)),
    )


def _canonical_only(patch: Patch) -> None:
    original = values.keys_of

    def plain(destination: Destination) -> tuple[str, ...]:
        whole = destination.canonical.partition("#")[0]
        return original(replace(destination, canonical=whole))

    _known_by(patch, plain)


def _hosts_vouch(patch: Patch) -> None:
    original = values.keys_of

    def folded(destination: Destination) -> tuple[str, ...]:
        keys = original(destination)
        if destination.kind != "url":
            return keys
        path = destination.canonical.partition("://")[2].partition("?")[0].rstrip("/")
        return (*keys, f"url:https://{path}", f"host:{destination.host}")

    _known_by(patch, folded)
    _pages_below_vouched(patch)


def _pages_below_vouched(patch: Patch) -> None:
    def found(keys: tuple[str, ...], known: Mapping[str, Evidence]) -> Iterator[Evidence]:
        return (known[key] for key in keys if key in known)

    patch.set(ladder, "_found", found)
