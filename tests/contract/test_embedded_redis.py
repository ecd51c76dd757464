"""The embedded server: private, tidy, and never left behind."""

import stat

import pytest
import redis

from guard.core.errors import GuardError
from guard.store.embedded import EmbeddedRedis


def client_of(server):
    """Return a plain client of a server."""
    return redis.Redis.from_url(server.url)


def test_only_its_user_can_reach_it(own_server):
    """The directory and the socket have no bit for others, and no port is open."""
    assert stat.S_IMODE(own_server.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((own_server.directory / "redis.sock").stat().st_mode) == 0o700
    with client_of(own_server) as client:
        assert client.config_get("port") == {"port": "0"}
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_stopping_leaves_nothing():
    """Neither a process nor a directory; a second stop does nothing."""
    server = EmbeddedRedis().start()
    directory, process = server.directory, server._process

    server.stop()
    server.stop()

    assert process is not None
    assert process.returncode is not None
    assert not directory.exists()
    assert server.pid is None


def test_a_directory_opened_to_others_is_refused(own_server):
    """Loosened permissions are noticed before a server is put there again."""
    own_server._process.kill()
    own_server._process.wait()
    own_server.directory.chmod(0o750)

    with pytest.raises(GuardError, match="open to others"):
        own_server.start()


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o755, 0o777, None])
def test_a_data_directory_that_is_not_private_is_refused(tmp_path, mode):
    """Labels on disk are as private as the socket; the owner of a link could point it elsewhere."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    if mode is None:
        (data := tmp_path / "link").symlink_to(tmp_path / "data")
    else:
        data.chmod(mode)

    with pytest.raises(GuardError, match="open to others"):
        EmbeddedRedis(data_dir=data).start()


def test_a_data_directory_keeps_state_over_a_restart(tmp_path):
    """With persistence on, what was written is there again, hostile path or not."""
    data = tmp_path / "--port 1\" 'x {y}"
    with EmbeddedRedis(data_dir=data) as server, client_of(server) as client:
        client.set("k", "v")
        assert client.config_get("port") == {"port": "0"}
    with EmbeddedRedis(data_dir=data) as server, client_of(server) as client:
        assert client.get("k") == b"v"

    assert stat.S_IMODE(data.stat().st_mode) == 0o700


def test_a_data_directory_with_a_line_break_is_refused(tmp_path):
    """No name may look like a second line of configuration."""
    with pytest.raises(GuardError, match="control characters"):
        EmbeddedRedis(data_dir=tmp_path / "a\nport 6379").start()
