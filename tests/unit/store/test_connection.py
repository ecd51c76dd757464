"""The coalescing client: failure, recovery, and replies that never change owner."""

import asyncio
import os
import signal

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
from tests.unit.store.conftest import kill

SEND = Attempt("id", Identity("alice", "one"), Role.SEND, 0.0)


async def eventually(call):
    """Return the first answer of a call that may fail for a while; bounded, not timed."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await call()
            except StateError:
                await asyncio.sleep(0)


async def test_a_killed_server_is_an_error_and_a_restarted_one_is_found_again(brittle, own_server):
    """No call hangs or passes while Redis is away, and nothing needs a restart afterwards."""
    await brittle.verify()
    kill(own_server)
    for _ in range(3):
        with pytest.raises(StateError):
            await brittle.attempt(SEND)

    own_server.start()

    assert await eventually(lambda: brittle.attempt(SEND)) == Snapshot()


async def test_a_slow_server_is_an_error_and_its_late_replies_answer_nobody(hurried, own_server):
    """A stopped server times out every call in flight; later replies belong to later calls."""
    echo = hurried.execute
    await eventually(lambda: echo("PING"))
    os.kill(own_server.pid, signal.SIGSTOP)

    late = await asyncio.gather(
        *(echo("ECHO", f"late {n}") for n in range(5)), return_exceptions=True
    )
    assert [type(error) for error in late] == [StateError] * 5
    assert {str(error) for error in late} == {"redis did not answer within 0.25 seconds"}

    kill(own_server)
    own_server.start()
    await eventually(lambda: echo("PING"))
    answers = await asyncio.gather(*(echo("ECHO", f"new {n}") for n in range(20)))
    assert answers == [f"new {n}".encode() for n in range(20)]


async def test_a_cancelled_call_does_not_shift_the_replies_of_others(
    store,
):
    """Its reply is read and thrown away."""
    echo = store.client.execute
    tasks = [asyncio.ensure_future(echo("ECHO", str(n))) for n in range(10)]
    await asyncio.sleep(0)
    tasks[3].cancel()

    answers = await asyncio.gather(*tasks, return_exceptions=True)

    expected = [str(n).encode() for n in range(10)]
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
async def test_a_connection_that_talks_nonsense_is_given_up(short_directory, answer, reason):
    """Bytes that are no reply, replies nobody asked for and a hang-up all end the connection."""
    path = short_directory() / "s"
    ends = []

    async def serve(reader, writer):
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


async def test_a_wrong_password_is_an_error_that_does_not_repeat_it(brittle, own_server):
    """The handshake fails closed and no message holds the credential."""
    await brittle.client.execute("CONFIG", "SET", "requirepass", "right")
    endpoint = parse_endpoint(own_server.url.replace("unix://", "unix://:wrong@"))
    client = RedisClient(endpoint, timeout=60.0)

    with pytest.raises(CommandRefusedError, match="WRONGPASS") as caught:
        await client.execute("PING")

    assert "wrong" not in str(caught.value) + repr(endpoint) + str(endpoint)
    await client.aclose()


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
def test_a_url_that_cannot_be_meant_is_refused(url):
    """An option that is not understood is never dropped in silence."""
    with pytest.raises(StateError):
        parse_endpoint(url)
