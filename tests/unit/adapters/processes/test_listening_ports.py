"""The sockets of a guard, opened before its workers."""

import socket
import stat

import pytest

from guard.adapters.processes.listening_ports import DECISIONS, close_sockets, open_sockets
from guard.core.errors import GuardError
from guard.settings import load_settings


def test_the_first_start_makes_the_directory_of_its_decision_socket(tmp_path):
    """What `guard init` prints has to work on a machine on which nothing has run."""
    path = tmp_path / "state" / "egress-guard" / "decide.sock"
    settings = load_settings(None, decisions=path, admin="127.0.0.1:0")
    found = open_sockets(settings)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        assert DECISIONS in found[0]
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    finally:
        close_sockets(found)


def test_a_directory_that_others_may_enter_is_refused(tmp_path):
    """Whoever can swap the socket can answer in the guard's place."""
    (tmp_path / "open").mkdir(mode=0o755)
    settings = load_settings(None, decisions=tmp_path / "open" / "s", admin="127.0.0.1:0")
    with pytest.raises(GuardError, match="open to others"):
        open_sockets(settings)
