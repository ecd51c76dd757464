"""Ports that are chosen before anybody listens on them."""

import socket

import pytest

from guard.adapters import loopback
from guard.adapters.loopback import free_port
from guard.core.errors import GuardError


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
    monkeypatch.setattr(loopback.secrets, "randbelow", _repeats(5, 5, 6))
    monkeypatch.setattr(loopback, "_given", set())

    assert free_port() != free_port()


def test_a_port_that_somebody_listens_on_is_not_free(monkeypatch):
    """And where none is, that is said instead of tried for ever."""
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        offset = taken.getsockname()[1] - loopback.LOWEST
        monkeypatch.setattr(loopback.secrets, "randbelow", lambda _: offset)
        monkeypatch.setattr(loopback, "_given", set())

        with pytest.raises(GuardError, match="is free"):
            free_port()


def _repeats(*numbers):
    rest = iter(numbers)
    return lambda _: next(rest)
