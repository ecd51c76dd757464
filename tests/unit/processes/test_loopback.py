"""Ports that are chosen before anybody listens on them."""

import socket
import sys

import pytest

from guard.core.errors import GuardError
from guard.processes import loopback
from guard.processes.loopback import free_port


@pytest.mark.parametrize(
    ("file", "first"),
    [("11500 60999", 11500), ("1024 65535", 32768), ("nonsense", 32768), (None, 32768)],
    ids=["usual", "nearly all", "unreadable", "no Linux"],
)
def test_no_connection_is_given_the_port_meanwhile(tmp_path, monkeypatch, file, first):
    """The kernel gives connections their ports from a range of its own; ours lie below it."""
    if file is not None:
        (tmp_path / "range").write_text(file, encoding="ascii")
    monkeypatch.setattr(loopback, "_RANGE", tmp_path / "range")
    span = first - loopback.LOWEST
    asked = []
    monkeypatch.setattr(loopback.secrets, "randbelow", lambda n: asked.append(n) or len(asked))

    assert free_port() < first
    assert set(asked) == {span}


def test_a_process_is_never_given_a_port_twice(monkeypatch):
    """Two listeners of one test are started long after both were chosen."""
    port, drawn = free_port(), loopback.secrets.randbelow
    again = iter([port - loopback.LOWEST])
    monkeypatch.setattr(loopback.secrets, "randbelow", lambda n: next(again, None) or drawn(n))

    assert free_port() != port
    assert next(again, None) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a server listen on it then")
def test_nobody_else_is_given_a_port_before_somebody_listens_on_it():
    """Another process finds it taken; whoever it was chosen for listens on it."""
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)) as server:
        socket.create_connection(server.getsockname()).close()


def test_only_the_last_ports_are_kept(monkeypatch):
    """A descriptor each is enough for what is being started."""
    monkeypatch.setattr(loopback, "KEPT", 2)
    for _ in range(4):
        free_port()

    assert len(loopback._kept) <= 2


def test_a_port_that_somebody_listens_on_is_not_free(monkeypatch):
    """And where none is, that is said instead of tried for ever."""
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        offset = taken.getsockname()[1] - loopback.LOWEST
        monkeypatch.setattr(loopback.secrets, "randbelow", lambda _: offset)
        monkeypatch.setattr(loopback, "_given", set())

        with pytest.raises(GuardError, match="is free"):
            free_port()
