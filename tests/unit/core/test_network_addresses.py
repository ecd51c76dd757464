"""Addresses a client must not be led to, in every spelling."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core.model import Destination
from guard.core.network_addresses import address_kind, refused_address
from guard.values.patterns import PatternSet

CLOSED = PatternSet(())


def host(name):
    """Return a host destination."""
    return Destination("host", name, name)


def ip(text):
    """Return an address destination."""
    return Destination("ip", text, text)


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


def test_nothing_but_public_addresses_is_open_by_default():
    """Without a word in the policy the guard lends nobody its place in the network."""
    assert refused_address(host("a.example"), ip("93.184.216.34"), CLOSED) is None
    assert refused_address(host("a.example"), ip("10.0.0.1"), CLOSED) == "private"
    assert refused_address(host("a.example"), ip("127.0.0.1"), CLOSED) == "loopback"


def test_a_name_in_the_policy_opens_private_addresses_and_no_metadata():
    """Whoever controls the name's zone must not reach the cloud's credentials through it."""
    named = PatternSet.parse(["db.internal"])

    assert refused_address(host("db.internal"), ip("10.0.0.1"), named) is None
    assert refused_address(host("other.internal"), ip("10.0.0.1"), named) == "private"
    assert refused_address(host("db.internal"), ip("169.254.169.254"), named) == "metadata"
    assert refused_address(host("db.internal"), ip("169.254.1.1"), named) == "link-local"


def test_a_network_in_the_policy_opens_what_lies_in_it():
    """An operator who writes the number means it."""
    networks = PatternSet.parse(["10.0.0.0/8", "169.254.169.254"])

    assert refused_address(host("any.example"), ip("10.9.9.9"), networks) is None
    assert refused_address(host("any.example"), ip("169.254.169.254"), networks) is None
    assert refused_address(host("any.example"), ip("192.168.0.1"), networks) == "private"
    assert refused_address(host("any.example"), ip("no address"), networks) == "no ip address"
