"""What a wrapper is told by whatever plays the guard: an answer is its own question's, or none."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress

import pytest

from guard.pep.stdio.wrapper import Decisions

HELLO = {"policy": "p", "name": "n"}


@pytest.fixture(name="place")
def _place(short_directory):
    return short_directory() / "s"


def own(asked):
    """Return the answer to a question, which names its frame."""
    return {"ok": True, "frame": asked.get("frame"), "n": asked["n"]}


@asynccontextmanager
async def told_by(path, answer, patience=60):
    """Return a wrapper's connection to a service that answers each question so."""
    serving = []

    async def serve(reader, writer):
        serving.append(asyncio.current_task())
        with suppress(OSError):
            while line := await reader.readline():
                for one in answer(json.loads(line)):
                    writer.write(json.dumps(one).encode() + b"\n")
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_unix_server(serve, path)
    decisions = Decisions(path, HELLO, patience)
    yield decisions
    decisions._drop()
    server.close()
    await asyncio.gather(*(task for task in serving if task is not None))


def frame_of(answer):
    """Return which question an answer is about."""
    return None if answer is None else answer["frame"]


async def asked(decisions, *frames):
    """Return what was said of each question, one after the other."""
    return [frame_of(await decisions.ask("request", frame.encode())) for frame in frames]


def twice(said):
    """Answer the first question twice."""
    return [own(said)] * (2 if said.get("frame") == "a" else 1)


def other(number):
    """Return what answers another question than was asked."""
    return lambda said: [own(said) if said["op"] == "hello" else {**own(said), "n": number}]


@pytest.mark.parametrize(
    ("answer", "heard"),
    [
        (lambda said: [own(said)], ["a", "b", "c"]),
        (twice, ["a", None, "c"]),
        *((other(number), [None, None, None]) for number in (-1, None, "1")),
    ],
    ids=["one", "twice", "another", "none", "text"],
)
async def test_each_question_gets_its_own_answer(place, answer, heard):
    """One that comes twice is nobody else's; the connection ends with it."""
    async with told_by(place, answer) as decisions:
        assert await asked(decisions, "a", "b", "c") == heard


async def test_an_answer_to_a_question_that_was_given_up_is_not_the_next_one_s(
    place,
):
    """Who asked was cancelled, or has waited for too long."""
    silent, left = asyncio.Event(), {"cancelled", "late"}

    def answer(said):
        if said.get("frame") in left:
            left.remove(said["frame"])
            silent.set()
            return []
        return [own(said)]

    async with told_by(place, answer, patience=0.2) as decisions:
        task = asyncio.create_task(decisions.ask("request", b"cancelled"))
        await silent.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

        assert await asked(decisions, "late", "a", "b") == [None, "a", "b"]
