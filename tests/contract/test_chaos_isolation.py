"""What the chaos run cuts, fills and shifts is cut, full and shifted, for its processes alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import closing

import pytest

from lab.chaos.isolation import DELAY, Clock, Isolation, fill


@pytest.fixture(name="isolation")
def _isolation():
    with Isolation() as isolation:
        yield isolation


def reaches(port, source="127.0.0.1"):
    """Return whether a connection can be opened to a port, from an address."""
    try:
        socket.create_connection(("127.0.0.1", port), 1, source_address=(source, 0)).close()
    except OSError:
        return False
    return True


def test_a_port_is_cut_off_from_one_address_only(isolation):
    """The other side still reaches it, and both do after it was mended."""
    if not isolation.has_network:
        pytest.skip("no network namespace: that needs root on Linux")
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        assert reaches(port)
        isolation.cut("127.0.0.1", port)
        assert not reaches(port)
        assert reaches(port, "127.0.0.12")
        isolation.mend()
        assert reaches(port)


def test_a_slow_link_delays_what_is_sent_over_it_and_loses_nothing(isolation):
    """Also where the connection was open before; afterwards it is as it was."""
    if not isolation.has_slow_links:
        pytest.skip("no TUN device: that needs root on Linux")
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port), 30)
        peer, _ = server.accept()
        with closing(client), closing(peer):
            isolation.slow("127.0.0.1", port)
            began = time.monotonic()
            client.sendall(b"x" * 100_000)
            arrived = 0
            while arrived < 100_000:
                arrived += len(peer.recv(1 << 16))
            assert time.monotonic() - began >= DELAY
            isolation.mend()
            client.sendall(b"y")
            assert peer.recv(1) == b"y"


def test_a_small_disk_is_full_until_the_filler_is_gone(isolation, tmp_path):
    """Nothing can be written meanwhile."""
    if not isolation.has_mounts:
        pytest.skip("no mount namespace: that needs root on Linux")
    isolation.small_disk(tmp_path / "disk", 1)
    filler = fill(tmp_path / "disk")
    with pytest.raises(OSError, match="No space left"):
        (tmp_path / "disk" / "more").write_bytes(b"x" * 4096)
    filler.unlink()
    (tmp_path / "disk" / "more").write_bytes(b"x" * 4096)
    isolation.remove_disk(tmp_path / "disk")
    assert not (tmp_path / "disk" / "more").exists()


def test_only_the_time_of_day_of_a_child_is_shifted(tmp_path):
    """It may sleep, its monotonic clock goes on, and what is set later counts at once."""
    clock = Clock(tmp_path)
    if not clock.environment:
        pytest.skip("no C compiler")
    code = (
        "import sys, time\n"
        "for _ in sys.stdin:\n"
        "    time.sleep(0.001)\n"
        "    print(time.time(), time.monotonic(), flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **clock.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        for shift in (0, 5000, -5000):
            clock.set(shift)
            before = time.time(), time.monotonic()
            child.stdin.write(b"now\n")
            child.stdin.flush()
            day, monotonic = map(float, child.stdout.readline().split())
            after = time.time(), time.monotonic()
            assert before[0] <= day - shift <= after[0]
            assert before[1] <= monotonic <= after[1]
