"""How users call the public API, checked by `mypy --strict`."""

from collections.abc import Mapping
from typing import Any, assert_type

from guard import Guard, Refused, Released, Session, SyncGuard, SyncSession, Verdict


async def use() -> None:
    """Use a guard with an event loop."""
    async with Guard.open(["policy.yaml"], state="redis://localhost", audit="audit.jsonl") as guard:
        assert_type(guard, Guard)
        session = guard.session("s1", principal="alice", tenant="acme")
        assert_type(session, Session)
        await session.prompt("write to bob@partner.example")
        verdict = await session.authorize(
            "send_email", {"to": "bob@partner.example"}, server="mail"
        )
        assert_type(verdict, Verdict)
        assert_type(verdict.allowed, bool)
        assert_type(verdict.action, str)
        assert_type(verdict.refusal, str)
        assert_type(verdict.decision_id, str)
        assert_type(verdict.reasons[0].code, str)
        released = await session.observe(verdict, {"sent": True}, is_error=False)
        assert_type(released, Released)
        assert_type(released.withheld, Verdict | None)
        try:
            await session.call("send_email", {"to": "x"}, run_async)
            await session.call("send_email", {"to": "x"}, run)
        except Refused as refused:
            assert_type(refused.verdict, Verdict)
        await guard.approve(verdict.decision_id, remember=3600.0)
        assert_type(await guard.deny(verdict.decision_id), bool)
        assert_type(await guard.authorize("tool", {}, session="s"), Verdict)


def use_sync() -> None:
    """Use one without."""
    with Guard.open_sync() as guard:
        assert_type(guard, SyncGuard)
        session = guard.session()
        assert_type(session, SyncSession)
        assert_type(session.authorize("tool", {}), Verdict)


def run(arguments: Mapping[str, Any]) -> str:
    """Stand for a tool."""
    return str(arguments)


async def run_async(arguments: Mapping[str, Any]) -> str:
    """Stand for an async tool."""
    return str(arguments)
