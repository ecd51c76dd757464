"""Time travel measured: generated runs through a recording guard, then a draft over them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.audit_log import NoAuditLog
from guard.adapters.credentials.label_key import load_key
from guard.adapters.onnx import load_models
from guard.adapters.recordings import RecordingWriter
from guard.adapters.redis.embedded import EmbeddedRedis
from guard.core.calls import ToolResult
from guard.core.errors import GuardError
from guard.core.metrics import Metrics
from guard.decision.guard import Guard
from guard.detectors import DetectorResources, create_detectors
from guard.lab.generate.scenes import evasions, hard_negatives, hippo_attacks, hippo_benign
from guard.policy_files import load_policies
from guard.replay.rehearsal import Job
from guard.replay.run import fresh_store, recorded_call
from guard.settings import models_directory

if TYPE_CHECKING:
    from guard.core.policy import Policy
    from guard.replay.traces import Run

STEP: Final = 0.1
"""Seconds between recorded calls."""


def travelled(policy: Path, calls: int) -> dict[str, Any]:
    """Record that many calls, and return what a stricter draft makes of them.

    Raises:
        GuardError: the rehearsal failed.
    """
    text = policy.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        key = directory / "recording.key"
        now = time.time()  # noqa: TID251  (what is recorded ends now)
        asyncio.run(_recorded(load_policies([policy]), directory / "rec", key, now, calls))
        job = Job(
            policy=[policy.resolve()],
            drafts={str(policy.resolve()): text.replace("effect: ask", "effect: block")},
            recordings=directory / "rec",
            key=key,
            since=now - 24 * 3600,
        )
        return _rehearsed(job)


def _rehearsed(job: Job) -> dict[str, Any]:
    ended = subprocess.run(
        [sys.executable, "-m", "guard.replay.rehearsal"],
        input=job.model_dump_json().encode() + b"\n",
        capture_output=True,
        check=False,
        timeout=1200,
    )
    told = json.loads(ended.stdout.splitlines()[-1])
    if "result" not in told:
        msg = f"the rehearsal failed: {told.get('error')}"
        raise GuardError(msg)
    found: dict[str, Any] = told["result"]["travel"]
    return found


async def _recorded(policy: Policy, place: Path, key: Path, now: float, calls: int) -> None:
    """Have a guard judge generated runs with its recorder on, until it has judged so many calls."""
    writer = RecordingWriter(place, load_key(key, "recording key"), Metrics())
    detectors = create_detectors(DetectorResources(load_models(models_directory())))
    seeds = (str(number) for number in range(1000))
    runs = (run for seed in seeds for run in _runs(seed))
    wanted = islice(((run, call) for run in runs for call in run.calls), calls)
    with EmbeddedRedis() as redis:
        async with fresh_store(redis.url, policy.limits) as store:
            guard = Guard(
                policy=policy,
                store=store,
                detectors=detectors,
                audit=NoAuditLog(),
                metrics=Metrics(),
                recorders=(writer,),
            )
            heard: set[tuple[str, str]] = set()
            for number, (run, call) in enumerate(wanted):
                at = now - 12 * 3600 + number * STEP
                asked = recorded_call(run, call, at)
                if (run.run_id, call.session) not in heard:
                    heard.add((run.run_id, call.session))
                    for prompt in run.prompts:
                        if prompt.session == call.session:
                            await guard.note_prompt(asked.identity, prompt.text, at)
                [(traced, verdict)] = await guard.authorize([asked])
                if verdict.enforced.forwards:
                    await guard.observe(ToolResult(traced, call.result, at))
    writer.close()


def _runs(seed: str) -> list[Run]:
    made = chain(evasions(seed), hard_negatives(seed), hippo_attacks(seed), hippo_benign(seed))
    return [run.model_copy(update={"run_id": f"{seed}:{run.run_id}"}) for run in made]
