"""SSRF protection: the addresses that clients may have the guard connect to.  Pure: no I/O.

The guard stands where its clients do not: beside its own Redis and admin endpoint, inside a
cloud's metadata network.  What a forward listener is asked for is therefore checked on the very
address it is about to connect to, in every mode, so a name that
is rebound between check and connection gains nothing.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.model import Destination

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA: Final = frozenset(
    map(
        ipaddress.ip_address, ("169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192")
    )
)
"""Addresses at which clouds hand out credentials; the second has a public number (Azure)."""
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_TUNNELS: Final = tuple(
    map(ipaddress.ip_network, ("2002::/16", "2001::/32", "64:ff9b:1::/48", "::/96", "fec0::/10"))
)
"""Ranges that carry an IPv4 address of somebody else's choosing, or that nobody may use."""
_SHARED: Final = ipaddress.ip_network("100.64.0.0/10")


def address_kind(text: str) -> str:
    """Return the kind of an address; all but ``public`` are special-purpose ranges.

    IPv4-mapped and NAT64 addresses are what they carry.  Kinds: ``public``, ``private``,
    ``loopback``, ``link-local``, ``metadata``, ``reserved``.

    Raises:
        ValueError: the text is not an IP address.
    """
    address = _carried(ipaddress.ip_address(text.partition("%")[0]))
    shared = isinstance(address, ipaddress.IPv4Address) and address in _SHARED
    tests = (
        ("metadata", address in _METADATA),
        ("loopback", address.is_loopback),
        ("link-local", address.is_link_local),
        ("reserved", _tunnelled(address) or address.is_unspecified or address.is_multicast),
        ("reserved", address.is_reserved),
        ("private", address.is_private or shared),
        ("reserved", not address.is_global),
    )
    return next((kind for kind, holds in tests if holds), "public")


def refused_address(
    host: Destination, address: Destination, may_be_private: Callable[[Destination], bool]
) -> str | None:
    """Return why the guard must not connect to an address, or None where it may.

    Args:
        host: the host as it was asked for and judged.
        address: the IP address it has now.
        may_be_private: the policy's ``egress.private``.  A name there opens private and loopback
            addresses; link-local, metadata and reserved ones only an address or network opens.
    """
    try:
        kind = address_kind(address.host)
    except ValueError:
        return "no ip address"
    if kind == "public" or may_be_private(address):
        return None
    if kind in {"private", "loopback"} and may_be_private(host):
        return None
    return kind


def _carried(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _tunnelled(address: Address) -> bool:
    return any(address in one for one in _TUNNELS if one.version == address.version)
