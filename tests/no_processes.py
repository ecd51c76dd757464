"""While a unit test runs, no process starts but Redis; what needs another is a contract or e2e."""

import multiprocessing.process
import os
import subprocess
from contextlib import contextmanager

import pytest

from guard.store.embedded import find_server


def is_redis(command):
    """Return whether a command line starts Redis, by the launcher that ends it with its parent."""
    words = [command] if isinstance(command, str | bytes | os.PathLike) else list(command)
    return os.fspath(find_server()) in map(os.fsdecode, words)


@contextmanager
def no_processes():
    """Fail the test that starts a process other than Redis, by whichever way Python has."""
    execute = subprocess.Popen._execute_child

    def checked(process, args, *more, **named):
        if not is_redis(args):
            pytest.fail(f"a unit test starts a process: {args!r}")
        return execute(process, args, *more, **named)

    def refused(*_, **__):
        pytest.fail("a unit test forks, or starts a process of multiprocessing")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "_execute_child", checked)
        patch.setattr(multiprocessing.process.BaseProcess, "start", refused)
        for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"):
            patch.setattr(os, name, refused)
        yield
