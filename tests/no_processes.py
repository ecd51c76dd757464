"""While a unit test runs, no process starts but Redis; what needs another is a contract or e2e."""

from __future__ import annotations

import multiprocessing.process
import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from guard.store.embedded import find_server

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_redis(command: Any) -> bool:
    """Return whether a command line starts Redis, by the launcher that ends it with its parent."""
    words = [command] if isinstance(command, str | bytes | os.PathLike) else list(command)
    return os.fspath(find_server()) in map(os.fsdecode, words)


@contextmanager
def no_processes() -> Iterator[None]:
    """Fail the test that starts a process other than Redis, by whichever way Python has."""
    execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def checked(process: Any, args: Any, *more: Any, **named: Any) -> Any:
        if not is_redis(args):
            pytest.fail(f"a unit test starts a process: {args!r}")
        return execute(process, args, *more, **named)

    def refused(*_: Any, **__: Any) -> Any:
        pytest.fail("a unit test forks, or starts a process of multiprocessing")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "_execute_child", checked)
        patch.setattr(multiprocessing.process.BaseProcess, "start", refused)
        for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"):
            patch.setattr(os, name, refused)
        yield
