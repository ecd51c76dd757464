"""State inside this process: the same scripts, run on fakeredis instead of a server.

For :class:`guard.in_process.Guard`, where one process is enough and nothing outlives it.  Every
command runs to its end without giving up the event loop, so a script is as atomic as in Redis.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Final, cast

from redis.exceptions import RedisError, ResponseError

from guard.core.errors import GuardError, StateError
from guard.store.connection import Argument, CommandRefusedError, Endpoint, RedisClient, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from guard.store.layout import Script

MEMORY: Final = "memory"
"""Name of this state in place of a Redis URL."""
_VERSION: Final = (7, 0)
"""The Redis that it answers as."""
_INFO: Final = b"redis_version:7.0\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"


class InProcessClient(RedisClient):
    """The client of a store that lives as long as this object."""

    ends_with_object = True

    def __init__(self) -> None:
        super().__init__(Endpoint(path=MEMORY))
        self._execute = _fake_server()
        self._taught: set[str] = set()

    async def execute(self, *command: Argument) -> Reply:
        """Run one command.

        Raises:
            CommandRefusedError: it was answered with an error.
            StateError: the client was closed.
        """
        return self._answer(command)

    async def run(self, script: Script, *arguments: Argument) -> Reply:
        """Run a script; the arguments are those of :meth:`RedisClient.run`.

        Raises:
            StateError: as :meth:`execute`.
        """
        if script.sha not in self._taught:
            self._answer(("SCRIPT LOAD", script.text))
            self._taught.add(script.sha)
        return self._answer(("EVALSHA", script.sha, *arguments))

    async def aclose(self) -> None:
        """Forget everything.  Every later call fails."""
        self._closed = True
        self._answer(("FLUSHALL",))

    def _answer(self, command: tuple[Argument, ...]) -> Reply:
        if self._closed and command[0] != "FLUSHALL":
            raise StateError("the in-process state was closed")
        try:
            if command[0] == "INFO":
                # fakeredis has no INFO: the version it answers as, and that it never evicts.
                return _INFO
            if command[0] == "CONFIG":
                return []
            return self._execute(*command)
        except ResponseError as error:
            raise CommandRefusedError(str(error)) from error
        except RedisError as error:
            raise StateError(f"the in-process state failed ({type(error).__name__})") from error


def _fake_server() -> Callable[..., Reply]:
    """Return how to run a command on a new, empty store."""
    # Only here: a guard with a Redis needs neither of the two.
    try:
        from fakeredis import FakeServer, FakeStrictRedis
    except ImportError as error:
        raise GuardError(
            "state in process needs `pip install 'agent-egress-guard[in-process]'`, or name a redis"
        ) from error

    client = FakeStrictRedis(
        server=FakeServer(version=_VERSION, server_type="redis"), lua_modules={"struct"}
    )
    # Replies as the wire has them; redis-py would turn some into Python objects.
    client.response_callbacks.clear()
    with _lua_modules():
        client.eval("return 1", 0)
    return cast("Callable[..., Reply]", client.execute_command)


@contextmanager
def _lua_modules() -> Iterator[None]:
    """Let the Lua that starts in here find the modules beside the scripts."""
    environment = os.environ  # noqa: TID251  (Lua reads no setting of ours)
    before = environment.get("LUA_PATH")
    with as_file(files("guard.store").joinpath("scripts")) as folder:
        environment["LUA_PATH"] = f"{folder}/?.lua"
        try:
            yield
        finally:
            del environment["LUA_PATH"]
            if before is not None:
                environment["LUA_PATH"] = before
