"""Sites: scheme, host and port of a URL, unless several owners share the host.  Pure: no I/O.

A prompt can extend the URL in it to the whole site.  Anybody can publish on a shared host, so such
a host is never a site.  It is in the policy's list or in the Public Suffix List.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from publicsuffix2 import PublicSuffixList

    from guard.core.model import Destination

SITE: Final = "site:"
"""Prefix of the values of sites."""
_PORTS: Final = {"http": 80, "https": 443}


@cache
def _suffixes() -> PublicSuffixList:
    # The list takes 20 ms to read, and few policies need it.
    from publicsuffix2 import PublicSuffixList

    return PublicSuffixList()


def is_shared(host: str, shared: AbstractSet[str]) -> bool:
    """Return whether a host may belong to several owners; an unclear one does.

    Args:
        host: lower-case name.
        shared: hosts of several owners, each with all names below it.
    """
    labels = host.split(".")
    above = {".".join(labels[start:]) for start in range(len(labels))}
    if not above.isdisjoint(shared):
        return True
    # Numbers and names of an intranet have no public suffix.
    suffix = _suffixes().get_tld(host, strict=True)
    return suffix is None or suffix == host


def sites_of(destination: Destination, shared: AbstractSet[str]) -> tuple[str, ...]:
    """Return the values of the site of a URL; a host without a scheme may mean two.

    Args:
        destination: any; only a URL and a host have a site.
        shared: hosts of several owners.
    """
    if destination.kind == "host":
        urls = [f"{scheme}://{destination.canonical}" for scheme in _PORTS]
    elif destination.kind == "url":
        urls = [destination.canonical]
    else:
        return ()
    if is_shared(destination.host, shared):
        return ()
    return tuple(site for url in urls if (site := _site(url, destination.host)))


def _site(url: str, host: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return ""
    if parts.scheme not in _PORTS or parts.username is not None:
        return ""
    return f"{SITE}{parts.scheme}://{host}:{port}"
