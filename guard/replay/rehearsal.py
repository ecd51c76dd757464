"""A policy before it is put in force: checked, tested, and replayed over recordings beside the old.

``python -m guard.replay.rehearsal`` takes a :class:`Job` as JSON on standard input and writes
``{"result"}`` or ``{"error"}``.  It is a process of its own because a replay of a week computes for
minutes.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from guard.core.errors import GuardError, PolicyError, PolicyProblem
from guard.credentials.key_ring import load_ring
from guard.credentials.label_key import recording_key_path
from guard.detectors import DetectorResources, create_detectors
from guard.inference.onnx import load_models
from guard.inference.text_classifier import load_classifiers
from guard.policy import load_policies
from guard.replay.policy_tests import SUFFIX, Coverage, load_suite, run_suite
from guard.replay.run import find_flips
from guard.replay.traces import Run, Selection, as_runs
from guard.settings import BUILTIN, models_directory
from guard.store.embedded import EmbeddedRedis
from guard.telemetry.recordings import RecordingReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.core.policy import Policy
    from guard.core.ports import Detector

WARM_SECONDS: Final = 24 * 3600.0
"""Recorded time that is replayed before the window, so that what was read then is known in it."""
PIECE: Final = 200
"""Calls of a tenant that are handed to the replay at a time."""
SHOWN: Final = 5
"""Calls that stand for a group of flips."""
GROUPS: Final = 500


class Job(BaseModel):
    """Input of a rehearsal."""

    model_config = ConfigDict(extra="forbid")

    policy: list[Path]
    """The files that make the policy, in order, as the guard is given them."""
    drafts: dict[str, str] = Field(default_factory=dict)
    """New text by path, of policy files and of test files beside them."""
    tests: bool = False
    """True to run the tests beside the files, with their coverage."""
    recordings: Path | None = None
    """Directory of ``--record``: whether to replay it."""
    key: Path | None = None
    """Key file of the recordings; left out, the user's own."""
    since: float = 0.0
    until: float = 0.0
    """Flips of calls recorded in this window are reported; 0: it has no end."""
    models: Path | None = None


@contextmanager
def drafted(policy: Sequence[Path], drafts: dict[str, str]) -> Iterator[dict[str, Path]]:
    """Write drafts where they can be read as files, each beside copies of its neighbours.

    Args:
        policy: the files that make the policy.
        drafts: new text by path.

    Yields:
        The copy to read by the path of each policy file and draft; a shipped policy is itself.
    """
    with tempfile.TemporaryDirectory(prefix="guard-draft-") as place:
        found: dict[str, Path] = {}
        folders: dict[Path, Path] = {}
        for text in dict.fromkeys([*map(str, policy), *drafts]):
            if text.startswith(BUILTIN):
                found[text] = Path(text)
                continue
            folder = Path(text).resolve().parent
            if folder not in folders:
                folders[folder] = Path(place) / str(len(folders))
                folders[folder].mkdir()
                for each in folder.glob("*.yaml"):
                    shutil.copyfile(each, folders[folder] / each.name)
            found[text] = folders[folder] / Path(text).name
        for text, content in drafts.items():
            found[text].write_text(content, encoding="utf-8", newline="")
        yield found


def read_draft(policy: Sequence[Path], drafts: dict[str, str]) -> Policy:
    """Return the policy as the drafts would make it.

    Raises:
        PolicyError: with the real files' names.
    """
    with drafted(policy, drafts) as found:
        try:
            return load_policies([found[str(path)] for path in policy])
        except PolicyError as error:
            raise PolicyError(_real_names(error, found)) from error


def _real_names(error: PolicyError, found: dict[str, Path]) -> tuple[PolicyProblem, ...]:
    names = {str(copy): name for name, copy in found.items()}
    return tuple(replace(one, path=names.get(one.path, one.path)) for one in error.problems)


def rehearse(job: Job) -> dict[str, Any]:
    """Return what tests and recordings say of a draft.

    Raises:
        GuardError: the draft or the policy in force cannot be read, or the recordings.
    """
    resources = DetectorResources(load_models(job.models or models_directory()), load_classifiers())
    detectors = create_detectors(resources)
    after = read_draft(job.policy, job.drafts)
    result: dict[str, Any] = {"name": after.name, "digest": after.digest}
    if job.tests:
        result["tests"] = _tested(job, detectors)
    if job.recordings is not None:
        result["travel"] = _travelled(job, after, detectors)
    return result


def _tested(job: Job, detectors: Sequence[Detector]) -> dict[str, Any]:
    """Run the tests that lie beside the policy's files, in the drafts' words."""
    outcomes: list[dict[str, Any]] = []
    covered: dict[str, Coverage] = {}
    with drafted(job.policy, job.drafts) as found:
        for path in job.policy:
            suite = found[str(path)].with_name(Path(path).stem + SUFFIX)
            if str(path).startswith(BUILTIN) or not suite.is_file():
                continue
            try:
                loaded = load_suite(suite)
                used = covered.setdefault(loaded.policy.digest, Coverage(loaded.policy))
                done = run_suite(loaded, detectors, used)
            except PolicyError as error:
                texts = [f"{one.line}: {one.message}" for one in error.problems]
                outcomes.append({"name": suite.name, "line": 0, "complaints": texts})
                continue
            outcomes += [
                {"name": one.case.name, "line": one.line, "complaints": list(one.complaints)}
                for one in done
            ]
    return {
        "run": len(outcomes),
        "failed": [one for one in outcomes if one["complaints"]],
        "coverage": [
            {"policy": one.policy.name, "share": one.share, "missed": list(one.missed)}
            for one in covered.values()
        ],
    }


def _read(job: Job) -> tuple[list[Run], dict[tuple[str, int], dict[str, Any]]]:
    """Return recorded runs, and what is known of each call beside them."""
    ring = load_ring(job.key or recording_key_path(), "recording key", make=False)
    reader = RecordingReader(job.recordings or Path(), *ring.readers())
    chosen = Selection(since=job.since - WARM_SECONDS, until=job.until or float("inf"))
    runs: list[Run] = []
    known: dict[tuple[str, int], dict[str, Any]] = {}
    for run in as_runs(reader.records(), chosen).runs:
        for call in run["calls"]:
            kept = ("id", "ts", "verdict", "policy", "tool")
            known[run["run_id"], call["i"]] = {name: call[name] for name in kept}
        runs += _pieces(run)
    return runs, known


def _pieces(run: dict[str, Any]) -> Iterator[Run]:
    """Yield a run in pieces of one name, each with the prompts of the sessions that begin in it."""
    heard: set[str] = set()
    for start in range(0, len(run["calls"]), PIECE):
        calls = run["calls"][start : start + PIECE]
        fresh = {call["session"] for call in calls} - heard
        heard |= fresh
        prompts = [one for one in run["prompts"] if one["session"] in fresh]
        yield Run.model_validate({**run, "calls": calls, "prompts": prompts})


def _travelled(job: Job, after: Policy, detectors: Sequence[Detector]) -> dict[str, Any]:
    """Replay the recordings under the policy in force and under the draft."""
    before = load_policies(job.policy)
    runs, calls = _read(job)
    alike: Counter[bool] = Counter()

    def judged(line: dict[str, Any]) -> None:
        call = calls[line["run_id"], line["i"]]
        if call["policy"] == before.digest and call["ts"] >= job.since:
            alike[line["action"] == call["verdict"]] += 1

    started = time.perf_counter()
    with EmbeddedRedis() as redis:
        flips, _ = asyncio.run(
            find_flips((before, after), lambda: runs, redis.url, detectors, judged)
        )
    seconds = time.perf_counter() - started
    inside = [one for one in flips if calls[one["run_id"], one["i"]]["ts"] >= job.since]
    return {
        "before": before.digest,
        "calls": sum(call["ts"] >= job.since for call in calls.values()),
        "replayed": len(calls),
        "seconds": round(seconds, 3),
        # Each judged by both.
        "calls_per_second": round(len(calls) / seconds, 1) if seconds else 0.0,
        "flips": len(inside),
        "kinds": dict(Counter(f"{one['before']} -> {one['after']}" for one in inside)),
        "groups": grouped(inside, calls),
        "compared": alike.total(),
        "as_recorded": alike[True],
    }


def grouped(
    flips: Sequence[dict[str, Any]], calls: dict[tuple[str, int], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return flips of one tool, verdicts and rules together, the most frequent first."""
    names = ("tool", "role", "before", "before_by", "after", "after_by")
    groups: dict[str, dict[str, Any]] = {}
    for flip in flips:
        shared = {name: flip[name] for name in names}
        key = json.dumps(list(shared.values()))
        group = groups.setdefault(key, {**shared, "count": 0, "sessions": set(), "decisions": []})
        group["count"] += 1
        group["sessions"].add(flip["session"])
        if len(group["decisions"]) < SHOWN:
            group["decisions"].append(calls[flip["run_id"], flip["i"]]["id"])
    ordered = sorted(groups.values(), key=lambda one: -one["count"])[:GROUPS]
    return [{**one, "sessions": len(one["sessions"])} for one in ordered]


def main() -> int:
    """Rehearse the job on standard input; return the exit code."""
    document: dict[str, Any]
    try:
        document = {"result": rehearse(Job.model_validate_json(sys.stdin.readline()))}
    except (GuardError, OSError) as error:
        document = {"error": str(error)}
    sys.stdout.write(json.dumps(document))
    return int("error" in document)


if __name__ == "__main__":
    sys.exit(main())
