"""Addresses a client must not be led to, in every spelling."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core.model import Destination
from guard.core.network_addresses import address_kind, refused_address
from guard.values.patterns import PatternSet


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("93.184.216.34", "public"),
        ("2606:4700::1111", "public"),
        ("127.0.0.1", "loopback"),
        ("127.255.0.9", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("10.1.2.3", "private"),
        ("172.31.0.1", "private"),
        ("192.168.0.1", "private"),
        ("::ffff:10.0.0.1", "private"),
        ("64:ff9b::a00:1", "private"),
        ("100.64.0.1", "private"),
        ("fd12::1", "private"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("169.254.169.254", "metadata"),
        ("::ffff:169.254.169.254", "metadata"),
        ("64:ff9b::a9fe:a9fe", "metadata"),
        ("168.63.129.16", "metadata"),
        ("100.100.100.200", "metadata"),
        ("0.0.0.0", "reserved"),
        ("::", "reserved"),
        ("::127.0.0.1", "reserved"),
        ("2002:7f00:1::", "reserved"),
        ("2001:0:53aa::1", "reserved"),
        ("224.0.0.1", "reserved"),
        ("ff02::1", "reserved"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
    ],
)
def test_an_address_is_of_one_kind(text, kind):
    """Mapped and translated addresses are what they carry."""
    assert address_kind(text) == kind


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_what_it_carries(address):
    """No IPv6 spelling of an IPv4 address opens what the IPv4 one does not."""
    plain = address_kind(str(address))

    assert address_kind(f"::ffff:{address}") == plain
    assert address_kind(str(ipaddress.IPv6Address((0x64FF9B << 96) | int(address)))) == plain


@given(st.ip_addresses())
def test_what_is_public_is_global(address):
    """Nothing is public here that the standard library calls private."""
    if address_kind(str(address)) == "public":
        assert (
            address.is_global or getattr(address, "ipv4_mapped", None) or "64:ff9b" in str(address)
        )


@pytest.mark.parametrize(
    ("opened", "name", "address", "refused"),
    [
        # Without a word in the policy the guard lends nobody its place in the network.
        ([], "a.example", "93.184.216.34", None),
        ([], "a.example", "10.0.0.1", "private"),
        ([], "a.example", "127.0.0.1", "loopback"),
        # Whoever controls the name's zone must not reach the cloud's credentials through it.
        (["db.internal"], "db.internal", "10.0.0.1", None),
        (["db.internal"], "other.internal", "10.0.0.1", "private"),
        (["db.internal"], "db.internal", "169.254.169.254", "metadata"),
        (["db.internal"], "db.internal", "169.254.1.1", "link-local"),
        # An operator who writes the number means it.
        (["10.0.0.0/8"], "any.example", "10.9.9.9", None),
        (["169.254.169.254"], "any.example", "169.254.169.254", None),
        (["10.0.0.0/8"], "any.example", "192.168.0.1", "private"),
        (["10.0.0.0/8"], "any.example", "no address", "no ip address"),
    ],
)
def test_an_address_is_refused_unless_the_policy_opens_it(opened, name, address, refused):
    """By name it opens private addresses and no metadata, by network what lies in it."""
    host, found = Destination("host", name, name), Destination("ip", address, address)
    assert refused_address(host, found, PatternSet.parse(opened)) == refused
