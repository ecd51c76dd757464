"""The coalescing client: failure, recovery, and replies that never change owner."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from guard.core.errors import StateError
from guard.core.model import Identity, Role
from guard.core.ports import Attempt
from guard.core.trajectory import Snapshot
from guard.store.connection import (
    CommandRefusedError,
    Endpoint,
    RedisClient,
    parse_endpoint,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from guard.store.embedded import EmbeddedRedis
    from guard.store.store import RedisSessionStore

SEND = Attempt("id", Identity("alice", "one"), Role.SEND, 0.0)


async def eventually(call: Callable[[], Awaitable[object]]) -> object:
    """Return the first answer of a call that may fail for a while; bounded, not timed."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await call()
            except StateError:
                await asyncio.sleep(0)


async def test_a_killed_server_is_an_error_and_a_restarted_one_is_found_again(
    brittle: RedisSessionStore, own_server: EmbeddedRedis
) -> None:
    """No call hangs or passes while Redis is away, and nothing needs a restart afterwards."""
    await brittle.verify()
    assert own_server.pid is not None
    os.kill(own_server.pid, signal.SIGKILL)
    own_server._process.wait()
    for _ in range(3):
        with pytest.raises(StateError):
            await brittle.attempt(SEND)

    own_server.start()

    assert await eventually(lambda: brittle.attempt(SEND)) == Snapshot()


async def test_a_slow_server_is_an_error_and_its_late_replies_answer_nobody(
    hurried: RedisClient, own_server: EmbeddedRedis
) -> None:
    """A stopped server times out every call in flight; later replies belong to later calls."""
    echo = hurried.execute
    await eventually(lambda: echo("PING"))
    assert own_server.pid is not None
    os.kill(own_server.pid, signal.SIGSTOP)

    late = await asyncio.gather(
        *(echo("ECHO", f"late {n}") for n in range(5)), return_exceptions=True
    )
    assert [type(error) for error in late] == [StateError] * 5
    assert {str(error) for error in late} == {"redis did not answer within 0.25 seconds"}

    os.kill(own_server.pid, signal.SIGKILL)
    own_server._process.wait()
    own_server.start()
    assert await eventually(lambda: answers_of(echo, "new")) == [
        f"new {n}".encode() for n in range(20)
    ]


async def answers_of(echo: Callable[..., Awaitable[object]], text: str) -> list[object]:
    """Return what twenty calls at once are answered."""
    return await asyncio.gather(*(echo("ECHO", f"{text} {n}") for n in range(20)))


async def test_a_pause_that_ends_leaves_no_reply_behind(
    hurried: RedisClient, own_server: EmbeddedRedis
) -> None:
    """The same server answers the same client again, each call its own."""
    echo = hurried.execute
    await eventually(lambda: echo("PING"))
    assert own_server.pid is not None
    os.kill(own_server.pid, signal.SIGSTOP)
    with pytest.raises(StateError, match="did not answer"):
        await echo("ECHO", "late")
    os.kill(own_server.pid, signal.SIGCONT)

    assert await eventually(lambda: echo("ECHO", "new")) == b"new"
    assert await eventually(lambda: answers_of(echo, "then")) == [
        f"then {n}".encode() for n in range(20)
    ]


async def test_a_cancelled_call_does_not_shift_the_replies_of_others(
    store: RedisSessionStore,
) -> None:
    """Its reply is read and thrown away."""
    echo = store.client.execute
    tasks = [asyncio.ensure_future(echo("ECHO", str(n))) for n in range(10)]
    await asyncio.sleep(0)
    tasks[3].cancel()

    answers = await asyncio.gather(*tasks, return_exceptions=True)

    expected: list[object] = [str(n).encode() for n in range(10)]
    assert answers[:3] + answers[4:] == expected[:3] + expected[4:]
    assert isinstance(answers[3], asyncio.CancelledError)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(b"!nonsense\r\n", "not a reply", id="no-protocol"),
        pytest.param(b"+a\r\n+b\r\n+c\r\n", "", id="too-many"),
        pytest.param(b"", "lost", id="hang-up"),
    ],
)
async def test_a_connection_that_talks_nonsense_is_given_up(
    short_directory: Callable[[], Path], answer: bytes, reason: str
) -> None:
    """Bytes that are no reply, replies nobody asked for and a hang-up all end the connection."""
    path = short_directory() / "s"
    ends: list[asyncio.Event] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.append(asyncio.Event())
        await reader.read(1000)
        writer.write(b"+OK\r\n")
        await reader.read(1000)
        writer.write(answer)
        if answer:
            await reader.read(1)
        writer.close()
        ends[-1].set()

    server = await asyncio.start_unix_server(serve, path)
    client = RedisClient(Endpoint(path=str(path)), timeout=60.0)
    if reason:
        with pytest.raises(StateError, match=reason):
            await client.execute("PING")
    else:
        assert await client.execute("PING") == b"a"
    await asyncio.wait_for(ends[0].wait(), 60)

    assert client._link is None
    await client.aclose()
    server.close()
    await server.wait_closed()


async def test_a_failed_connect_is_not_repeated_at_once(tmp_path: Path) -> None:
    """While it is recent, calls fail without another try; nothing sleeps inside a call."""
    client = RedisClient(Endpoint(path=str(tmp_path / "none")), backoff=(60.0, 60.0))
    with pytest.raises(StateError, match="cannot be reached"):
        await client.execute("PING")
    with pytest.raises(StateError, match="a moment ago"):
        await client.execute("PING")


async def test_a_wrong_password_is_an_error_that_does_not_repeat_it(
    brittle: RedisSessionStore, own_server: EmbeddedRedis
) -> None:
    """The handshake fails closed and no message holds the credential."""
    await brittle.client.execute("CONFIG", "SET", "requirepass", "right")
    endpoint = parse_endpoint(own_server.url.replace("unix://", "unix://:wrong@"))
    client = RedisClient(endpoint, timeout=60.0)

    with pytest.raises(CommandRefusedError, match="WRONGPASS") as caught:
        await client.execute("PING")

    assert "wrong" not in str(caught.value) + repr(endpoint) + str(endpoint)
    await client.aclose()


async def test_a_closed_client_stays_closed(redis_server: EmbeddedRedis) -> None:
    """After ``aclose`` no call reopens the connection."""
    client = RedisClient(parse_endpoint(redis_server.url), timeout=60.0)
    await client.execute("PING")
    await client.aclose()

    with pytest.raises(StateError, match="closed"):
        await client.execute("PING")


async def test_closing_while_a_connect_is_under_way_fails_its_callers(
    short_directory: Callable[[], Path],
) -> None:
    """They get a ``StateError``, not a cancellation that would pass their handlers by."""
    path = short_directory() / "s"
    server = await asyncio.start_unix_server(lambda _reader, writer: writer.close(), path)
    client = RedisClient(Endpoint(path=str(path)), timeout=60.0)
    call = asyncio.ensure_future(client.execute("PING"))
    await asyncio.sleep(0)
    await client.aclose()

    with pytest.raises(StateError):
        await call
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost",
        "unix://",
        "redis://localhost:99999",
        "redis://localhost?ssl_cert_reqs=none",
        "rediss://localhost?ssl_crt_reqs=required",
        "rediss://localhost?ssl_cert_reqs=optional",
        "rediss://localhost?ssl_ca_certs=/nonexistent",
        "",
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str) -> None:
    """An option that is not understood is never dropped in silence."""
    with pytest.raises(StateError):
        parse_endpoint(url)


def test_a_url_becomes_an_endpoint() -> None:
    """Every part of it is used; certificates are checked unless the URL says otherwise."""
    plain = parse_endpoint("redis://u:p%40@h:1/3")
    assert plain == Endpoint(host="h", port=1, db=3, username="u", password="p@")
    assert plain.handshake == (
        ("AUTH", "u", "p@"),
        ("SELECT", "3"),
        ("CLIENT", "SETNAME", "guard"),
    )

    secure = parse_endpoint("rediss://h").tls
    assert secure is not None
    assert (secure.check_hostname, secure.verify_mode.name) == (True, "CERT_REQUIRED")
    lax = parse_endpoint("rediss://h?ssl_cert_reqs=none").tls
    assert lax is not None
    assert lax.verify_mode.name == "CERT_NONE"
