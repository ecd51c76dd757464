"""The sockets of a guard, opened before its workers."""

import socket
import stat

import pytest

from guard.core.errors import GuardError
from guard.processes.listening_ports import DECISIONS, close_sockets, open_sockets
from guard.settings import load_settings


def test_the_first_start_makes_the_directory_of_its_decision_socket(short_directory):
    """What `guard init` prints has to work on a machine on which nothing has run."""
    path = short_directory() / "state" / "egress-guard" / "decide.sock"
    settings = load_settings(None, decisions=path, admin="127.0.0.1:0")
    found = open_sockets(settings)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        assert DECISIONS in found[0]
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    finally:
        close_sockets(found)


@pytest.mark.parametrize(("mode", "wanted"), [(0o700, 0o660), (0o770, 0o660), (0o750, 0o660)])
def test_an_envoy_of_the_same_group_may_connect(short_directory, mode, wanted):
    """One socket, from which every worker accepts; who may enter the directory is its owner's."""
    directory = short_directory() / "run"
    directory.mkdir()
    directory.chmod(mode)
    place = f"unix:{directory / 'decide.sock'}"
    listen = {"listen": [place], "server": ["mail=http://127.0.0.1:1"], "workers": 2}
    found = open_sockets(load_settings(None, admin="127.0.0.1:0", **listen))
    try:
        assert [one[place][0].getsockname() for one in found] == [place.removeprefix("unix:")] * 2
        assert stat.S_IMODE((directory / "decide.sock").stat().st_mode) == wanted
        with pytest.raises(GuardError, match="somebody does"):
            open_sockets(load_settings(None, admin="127.0.0.1:0", **listen))
    finally:
        close_sockets(found)
    # Nobody listens any more: the next guard takes the place of the socket that is left.
    close_sockets(open_sockets(load_settings(None, admin="127.0.0.1:0", **listen)))


@pytest.mark.parametrize("mode", [0o777, 0o701, 0o775, 0o755])
def test_the_directory_of_a_socket_is_nobody_else_s(tmp_path, mode):
    """Whoever reaches it could say who anybody is, or answer in the guard's place."""
    directory = tmp_path / "run"
    directory.mkdir()
    directory.chmod(mode)
    place, admin = directory / "decide.sock", "127.0.0.1:0"
    envoy = {"listen": [f"unix:{place}"], "server": ["mail=http://127.0.0.1:1"]}
    own, words = ({"decisions": place}, "open to others") if mode == 0o755 else (envoy, "chmod 770")
    with pytest.raises(GuardError, match=words):
        open_sockets(load_settings(None, admin=admin, **own))
