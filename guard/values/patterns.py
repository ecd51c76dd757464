"""Patterns of a policy for destinations, and sets of them.  Pure: no I/O."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guard.values.canonical import (
    REST_SIGN,
    URL_START,
    canonical_host,
    canonical_ip,
    is_ip,
    read_destinations,
    read_recipient,
    untagged,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from guard.core.model import Destination

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

FORMS: Final = (
    "`example.com`, `*.example.com`, `user@example.com`, `https://example.com/path/`, "
    "`10.0.0.0/8`, `handle:VALUE` or `*`"
)
"""The valid forms, for messages."""

_UNMATCHABLE: Final = frozenset({"malformed", "missing"})
_HANDLE: Final = "handle:"
_EVERY: Final = ("any", "*")
_FORM_OF: Final = {"mail": "mailbox", "handle": "handle"}
"""Form of the patterns that name one destination, by its kind."""
_PROBE: Final = "guard-probe"
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/]*")


@dataclass(frozen=True, slots=True)
class DestinationPattern:
    """One pattern, made by :func:`parse_pattern`."""

    text: str
    """Text as written in the policy, for messages."""
    form: str
    """``host``, ``subdomains``, ``mailbox``, ``url``, ``network``, ``handle`` or ``any``."""
    value: str
    """The canonical host, parent domain, mailbox, URL prefix, network or handle."""
    network: Network | None = None


def _under(url: str, prefix: str) -> bool:
    path = url.partition(REST_SIGN)[0].partition("?")[0]
    return path == prefix or path.startswith(prefix if prefix.endswith("/") else f"{prefix}/")


def parse_pattern(text: str) -> DestinationPattern:
    """Return the pattern that a text writes.

    - ``example.com``: mail, URL or host at exactly this host; never a sub-domain
    - ``*.example.com``: any depth of sub-domain; never ``example.com`` itself
    - ``user@example.com``: this mailbox; with a ``+tag`` only in a set that folds tags
    - ``https://host/path/``: this scheme, host and port, and the path at a segment boundary
    - ``10.0.0.0/8``: an IP address in the network; ``10.0.0.1`` is one address
    - ``handle:VALUE``: exactly this account, channel or id
    - ``*``: every destination that can be read

    Raises:
        ValueError: the text is none of these; the message says what would be.
    """
    if not text or text != text.strip():
        raise _problem(text, f"is empty or has spaces around it, write {FORMS}")
    if text == "*":
        return DestinationPattern(text, "any", "*")
    if text.startswith(_HANDLE):
        return _handle_pattern(text)
    if any(char.isspace() for char in text):
        raise _problem(text, f"has a space in it, write an opaque name as `{_HANDLE}{text}`")
    if URL_START.match(text):
        return _url(text)
    if "*" in text:
        return _subdomains(text)
    if "@" in text:
        return _mailbox_pattern(text)
    return _network(text) if "/" in text else _host(text)


def _problem(text: str, message: str) -> ValueError:
    return ValueError(f"destination pattern `{text}` {message}")


def _handle_pattern(text: str) -> DestinationPattern:
    value = text.removeprefix(_HANDLE).strip()
    found = read_recipient(value)
    if any(separator in value for separator in ",;\r\n"):
        raise _problem(text, "names more than one handle, write one pattern for each")
    if len(found) != 1 or found[0].kind != "handle":
        kind = found[0].kind if found else "empty"
        raise _problem(text, f"is no opaque handle but {kind}, write `{value or 'VALUE'}` plainly")
    return DestinationPattern(text, "handle", found[0].canonical)


def _url(text: str) -> DestinationPattern:
    if "*" in text:
        raise _problem(text, "has a `*`, write one URL prefix such as `https://example.com/path/`")
    if "?" in text or "#" in text:
        plain = text.partition("#")[0].partition("?")[0]
        raise _problem(text, f"has a query or fragment, write `{plain}`")
    found = read_recipient(text)[0]
    if found.kind != "url":
        raise _problem(text, "is no well-formed URL, write it as `https://example.com/path/`")
    if "@" in text.split("/")[2]:
        plain = found.canonical.partition(REST_SIGN)[0]
        raise _problem(text, f"has user information, write `{plain}`")
    return DestinationPattern(text, "url", found.canonical)


def _subdomains(text: str) -> DestinationPattern:
    parent = text.removeprefix("*.")
    if "*" in parent:
        bare = parent.replace("*", "").strip(".@") or "example.com"
        message = "has a `*` elsewhere than as its whole first label"
        raise _problem(text, f"{message}, write `*.{bare}` or `{bare}`")
    host = canonical_host(parent)
    if host is None or is_ip(host):
        raise _problem(text, "names no domain behind `*.`, write `*.example.com`")
    if "." not in host:
        raise _problem(text, f"spans a whole top-level domain, write `*.example.{host}`")
    return DestinationPattern(text, "subdomains", host)


def _mailbox_pattern(text: str) -> DestinationPattern:
    if text.startswith("@"):
        raise _problem(text, f"has no mailbox before `@`, write `{text[1:]}` for all of them")
    found = read_recipient(text)
    if len(found) != 1 or found[0].kind != "mail" or "<" in text:
        raise _problem(text, "is not one plain mail address, write `user@example.com`")
    return DestinationPattern(text, "mailbox", found[0].canonical)


def _network(text: str) -> DestinationPattern:
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise _problem(text, f"is no network, write `10.0.0.0/8` or `https://{text}`") from None
    if str(network.network_address) != text.partition("/")[0].lower():
        raise _problem(text, f"has bits set outside its mask, write `{network}`")
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is not None:
        raise _problem(text, f"is written as IPv4-mapped IPv6, write `{mapped}` and its mask")
    return DestinationPattern(text, "network", str(network), network)


def _host(text: str) -> DestinationPattern:
    literal = canonical_ip(text)
    if literal is not None:
        if literal != text.lower():
            raise _problem(text, f"is an unusual spelling of an IP address, write `{literal}`")
        return DestinationPattern(text, "host", literal)
    name, colon, port = text.rpartition(":")
    if colon and port.isdigit():
        raise _problem(text, f"has a port, write `https://{text}/` or `{name}`")
    host = canonical_host(text)
    if host is None:
        raise _problem(text, f"is no host name, write {FORMS}")
    if "." not in host and host != "localhost":
        raise _problem(text, f"has no dot, write `{_HANDLE}{text}` or `https://{text}/`")
    return DestinationPattern(text, "host", host)


@dataclass(slots=True)
class PatternSet:
    """Patterns as one question; exact ones are looked up, and only prefixes and networks scanned.

    Never matches what is malformed or missing.

    Callable, so that it can be a policy's ``is_internal``, ``is_allowed`` or ``is_denied``.
    """

    patterns: tuple[DestinationPattern, ...] = ()
    folds_tags: bool = False
    """True if a mailbox without ``+tag`` stands for all its tags, as it does in the deny list."""
    _known: set[tuple[str, str]] = field(default_factory=set, init=False, repr=False, compare=False)
    """Form and value of each pattern."""
    _urls: dict[str, list[str]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _networks: list[Network] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.patterns = tuple(self.patterns)
        for pattern in self.patterns:
            self._known.add((pattern.form, pattern.value))
            if pattern.form == "url":
                self._urls.setdefault(_origin(pattern.value), []).append(pattern.value)
            elif pattern.network is not None:
                self._networks.append(pattern.network)

    @classmethod
    def parse(cls, texts: Iterable[str], *, folds_tags: bool = False) -> PatternSet:
        """Return the set of the patterns that the texts write.

        Raises:
            ValueError: one of them is not a pattern.
        """
        return cls(tuple(map(parse_pattern, dict.fromkeys(texts))), folds_tags)

    def matches(self, destination: Destination) -> bool:
        """Return whether any of the patterns matches the destination."""
        kind, host, canonical = destination.kind, destination.host, destination.canonical
        known = self._known
        if not known or kind in _UNMATCHABLE:
            return False
        if _EVERY in known or (host and ("host", host) in known):
            return True
        form = _FORM_OF.get(kind)
        if (form, canonical) in known:
            return True
        if kind == "mail" and self.folds_tags and (form, untagged(canonical)) in known:
            return True
        if kind == "url":
            prefixes = self._urls.get(_origin(canonical), ())
            if any(_under(canonical, prefix) for prefix in prefixes):
                return True
        return bool(host) and self._spans(host)

    __call__ = matches

    def _spans(self, host: str) -> bool:
        """Return whether a wildcard or a network spans the host."""
        _, dot, parent = host.partition(".")
        while dot:
            if ("subdomains", parent) in self._known:
                return True
            _, dot, parent = parent.partition(".")
        return bool(self._networks and is_ip(host)) and any(
            ipaddress.ip_address(host) in network for network in self._networks
        )


def _origin(url: str) -> str:
    found = _ORIGIN.match(url)
    return found[0] if found else ""


def shadowing_pattern(text: str, denied: Sequence[str]) -> str | None:
    """Return the first deny entry that matches all that an entry matches, as far as probes tell.

    The probes are destinations that the entry matches, of every form it can match; an entry that
    no probe fits is compared by its text.
    """
    matches = PatternSet((parse_pattern(text),))
    probes = [probe for probe in _probes(text) if matches(probe)]
    for candidate in denied:
        if candidate == text:
            return candidate
        denies = PatternSet((parse_pattern(candidate),))
        if probes and all(denies(probe) for probe in probes):
            return candidate
    return None


def _probes(text: str) -> Iterator[Destination]:
    bare = text.removeprefix("*.")
    hosts = (bare, f"{_PROBE}.{bare}")
    texts = [text, text + _PROBE, text.removeprefix("handle:"), text.split("/", maxsplit=1)[0]]
    for host in hosts:
        texts += [host, f"{_PROBE}@{host}", f"https://{host}/{_PROBE}"]
    for probe in texts:
        for destination in read_destinations(probe):
            if destination.kind not in {"malformed", "missing"}:
                yield destination
