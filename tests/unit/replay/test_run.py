"""Tests of open-loop replay, on a real Redis."""

import json
import random

import pytest
from typer.testing import CliRunner

from guard import cli
from guard.cli.running import shipped_detectors
from guard.core.errors import GuardError
from guard.core.model import PrincipalRung, Role, SessionRung
from guard.replay.run import CHUNK, CONCURRENCY, Replay, fresh_store
from guard.replay.traces import parse_run
from guard.store.connection import RedisClient, parse_endpoint

POLICY = """
version: 1
name: test
mode: enforce
internal_domains: [corp.test]
tools:
  - {match: [recall], role: recall}
  - {match: [save], role: save}
  - {match: [mail], role: send, destinations: ["$.to"], body: ["$.body"]}
rules:
  - {id: no-outside, type: destination, roles: [send], status: [external], effect: block}
  - {id: inside, type: destination, roles: [send], status: [internal], effect: allow}
  - {id: work, type: tool, mapped: true, roles: [recall, save], effect: allow}
"""


class Spy:
    """A detector that keeps what it was shown and finds nothing."""

    name = "spy"

    def __init__(self):
        self.seen = []

    def inspect(self, call, snapshot):
        self.seen.append((call.call, snapshot))
        return ()


@pytest.fixture
def policy(policy_from):
    """The test policy, loaded."""
    return policy_from(POLICY)


def call(tool, session="0", ts=None, **args):
    """Return one recorded call as JSON, without its position."""
    return {"session": session, "tool": tool, "args": args, **({"ts": ts} if ts else {})}


def run(name, *calls, **fields):
    """Return one recorded run as JSON."""
    numbered = [{"i": i, **each} for i, each in enumerate(calls)]
    return {"run_id": name, "calls": numbered, **fields}


OUTSIDE = call("mail", to="x@evil.test")
INSIDE = call("mail", to="a@corp.test")
RECALL = call("recall", key="k")


async def replay(redis_server, policy, documents, detectors=()):
    """Replay runs and return the lines written, parsed, with the summary."""
    lines = []
    runs = [parse_run(json.dumps(document).encode()) for document in documents]
    async with fresh_store(redis_server.url, policy.limits) as store:
        summary = await Replay(policy, store, detectors).run(runs, lines.append)
    return [json.loads(line) for line in lines], summary


def mixed_runs():
    """Return more runs than are replayed at once, some of shared principals."""
    chooser = random.Random(7)
    return [
        run(
            f"r{n}",
            *(chooser.choice([RECALL, OUTSIDE, INSIDE, call("save")]) for _ in range(n % 6)),
            principal=f"p{n % (2 * CONCURRENCY)}",
            labels={"attack": bool(n % 2)},
        )
        for n in range(CHUNK + 20)
    ]


async def test_a_line_says_what_was_decided_and_why(redis_server, policy):
    """Every field of the output format is there, with the recorded call's own names."""
    [_, line], summary = await replay(
        redis_server, policy, [run("r", RECALL, OUTSIDE)], shipped_detectors(None)
    )
    reasons = line.pop("reasons")
    score = line.pop("score")
    assert line.pop("remedies") == [{"kind": "none"}]
    assert line == {
        "run_id": "r",
        "i": 1,
        "session": "0",
        "tool": "mail",
        "role": "send",
        "action": "block",
        "mode": "enforce",
        "rules": ["no-outside"],
    }
    assert 0 <= score <= 1
    assert [(r["rule"], r["action"]) for r in reasons] == [("no-outside", "block")]
    assert all({"code", "detail"} <= set(r) for r in reasons)
    assert (summary.runs, summary.calls) == (1, 2)
    assert summary.rows() == [("recall", [1, 0, 0, 0]), ("send", [0, 0, 0, 1])]


async def test_replay_never_reads_labels(redis_server, policy):
    """Labels removed, swapped or turned into nonsense change no byte, in whichever replay."""
    documents = mixed_runs()[: CONCURRENCY + 2]
    nonsense = {"attack": "nonsense", "attacker_recipients": ["a@corp.test"]}
    changed = [{**document, "labels": nonsense} for document in documents]
    bare = [{k: v for k, v in document.items() if k != "labels"} for document in documents]

    expected = await replay(redis_server, policy, documents, shipped_detectors(None))
    assert await replay(redis_server, policy, changed, shipped_detectors(None)) == expected
    assert await replay(redis_server, policy, bare, shipped_detectors(None)) == expected


async def test_a_call_that_would_be_blocked_still_counts_as_executed(redis_server, policy):
    """Open-loop: the recording is what happened, whatever the policy says of it."""
    spy = Spy()
    lines, _ = await replay(redis_server, policy, [run("r", OUTSIDE, OUTSIDE, RECALL)], [spy])
    assert [line["action"] for line in lines] == ["block", "block", "allow"]
    counts = [snapshot.session.trajectory.count(Role.SEND) for _, snapshot in spy.seen]
    assert counts == [0, 1, 2]
    assert all(sum(snapshot.session.refused) == 0 for _, snapshot in spy.seen)


async def test_identities_windows_and_clock_are_the_recording_s(redis_server, policy):
    """Runs of one principal share its window in file order; sessions and tenants are apart.

    A call is judged at its own time, and one second later where none was recorded.
    """

    async def seen(*documents):
        spy = Spy()
        await replay(redis_server, policy, documents, [spy])
        return spy.seen

    def recalls(snapshot):
        windows = snapshot.session, snapshot.principal
        return [window.trajectory.count(Role.RECALL) for window in windows]

    first, second = (run(name, one, principal="p") for name, one in (("a", RECALL), ("b", INSIDE)))
    assert recalls((await seen(first, second))[1][1]) == [0, 1]
    strangers = await seen(run("a", RECALL), run("b", INSIDE))
    assert all(sum(snapshot.principal.attempted) == 0 for _, snapshot in strangers)
    assert {request.identity.tenant for request, _ in strangers} == {"a", "b"}
    later = call("mail", session="1")
    [(_, _), (request, snapshot)] = await seen(run("r", call("recall", ts=1000), later))
    assert recalls(snapshot) == [0, 1]
    assert request.identity.session_rung is SessionRung.RECORDED
    assert request.identity.principal_rung is PrincipalRung.RECORDED
    assert request.at == 1001.0


async def test_a_replay_removes_its_keys_and_no_others(own_server, policy):
    """The server may be shared: what others keep there stays."""
    bystander = RedisClient(parse_endpoint(own_server.url), timeout=60.0)
    await bystander.execute("SET", "guard-replay-of-somebody-else", "1")
    async with fresh_store(own_server.url, policy.limits) as store:
        runs = [parse_run(json.dumps(document).encode()) for document in mixed_runs()]
        await Replay(policy, store, ()).run(runs, lambda _: None)
        assert await bystander.execute("DBSIZE") > CONCURRENCY
    assert await bystander.execute("KEYS", "*") == [b"guard-replay-of-somebody-else"]
    await bystander.aclose()


async def test_a_store_that_fails_on_the_way_fails_the_replay(own_server, policy):
    """Verdicts that only say that Redis was gone are not passed off as the policy's."""
    runs = [parse_run(json.dumps(run("r", RECALL)).encode())] * (CHUNK + 1)
    with pytest.raises(GuardError):
        async with fresh_store(own_server.url, policy.limits) as store:
            await Replay(policy, store, ()).run(runs, lambda _: None, own_server.stop)


@pytest.fixture
def trace(tmp_path):
    """A trace file of two runs."""
    path = tmp_path / "t.jsonl"
    lines = [json.dumps(run("a", RECALL, OUTSIDE)), json.dumps(run("b", INSIDE))]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("policy_text", "trace_text", "options", "code", "said"),
    [
        (POLICY, '{"run_id": 1}', ("--out", "{folder}/out.jsonl"), 3, "t.jsonl:3: run_id: "),
        (POLICY + "extra: 1\n", "", (), 3, "policy.yaml:"),
        (POLICY, "", ("--out", "{folder}/t.jsonl"), 3, "is one of the traces"),
        (POLICY, "", ("--redis", "unix://{folder}/nobody.sock"), 1, "guard traces: "),
        (POLICY, "", ("--models", "{folder}/none"), 1, "guard traces: "),
    ],
    ids=["trace", "policy", "overwritten", "redis", "models"],
)
def test_what_cannot_be_replayed_is_said_and_writes_nothing(
    tmp_path, trace, policy_text, trace_text, options, code, said
):
    """Nothing is judged before everything was read; a trace is never overwritten."""
    path = tmp_path / "policy.yaml"
    path.write_text(policy_text, encoding="utf-8")
    with trace.open("a", encoding="utf-8") as stream:
        stream.write(f"\n{trace_text}")
    before = trace.read_bytes()
    words = ["traces", "replay", str(trace), "--policy", str(path)]
    words += [option.format(folder=tmp_path) for option in options]
    result = CliRunner().invoke(cli.app, words)
    assert (result.exit_code, said in result.stderr) == (code, True)
    assert trace.read_bytes() == before
    assert not (tmp_path / "out.jsonl").exists()
