"""``guard memory watch`` and ``guard memory findings``: saves that look poisoned, after commit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Final

import typer

from guard.cli.admin_api import AdminApi, by_api
from guard.cli.outcome import given_input
from guard.cli.running import Audit, Key, Redis, State, Tenant, act_on, now, on_record
from guard.cli.terminal import show_table
from guard.core.errors import GuardError, InputError, StateError
from guard.core.mappings import DetectionSettings
from guard.inference.onnx import TextModel
from guard.operations.approvals import EVENT_FINDING
from guard.operations.detection import Model, Round, Watch
from guard.policy import load_policies

SECONDS: Final = 60.0
PolicyFiles = Annotated[
    list[Path], typer.Option("--policy", "-p", help="As the guard has it; `detection` in it.")
]


def watch(
    policy: PolicyFiles,
    redis: Redis,
    model: Annotated[
        Path | None, typer.Option(help="ONNX model of texts; needs `propagation.versions`.")
    ] = None,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Take the saves on record as clean, and count what fires."
        ),
    ] = False,
    label_key: Key = None,
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Judge saves after they were committed; no write waits for it.

    `guard run` starts the same by itself, without --model, where its policy has `detection`.  While
    it does not run nothing is found, and scopes say what nobody has looked at.
    """
    settings = _settings(policy)
    texts = None
    if model is not None:
        with given_input():
            loaded = TextModel(model.read_bytes())
        texts = Model(loaded.digest, loaded.probabilities)

    async def look(state: State) -> None:
        watching = Watch(state.store, state.seal, settings, tenant, texts)
        if calibrate:
            found = await watching.calibrate()
            may = found.allows(found.threshold, found.model)
            typer.echo(
                f"fired on {found.fired} of {found.saves} saves; it may "
                f"{'withhold by itself' if may else 'only have people asked'}"
            )
            return
        with on_record(audit) as log:
            while True:
                done = await _round(watching)
                if done is not None:
                    for finding in done.findings:
                        log.event(EVENT_FINDING, {"act": "found", **finding.document()})
                    _tell(done)
                if once and done is None:
                    raise GuardError("the log was not judged")
                if once:
                    return
                await asyncio.sleep(every)

    act_on(redis, look, label_key=label_key, timeout=SECONDS)


async def _round(watching: Watch) -> Round | None:
    try:
        return await watching.round(now())
    except (StateError, OSError) as error:
        # The store comes back or does not; what was saved meanwhile is judged then.
        typer.echo(f"guard: not judged: {error}", err=True)
        return None


def _settings(policy: list[Path]) -> DetectionSettings:
    propagation = load_policies(policy).propagation
    if propagation is None or propagation.detection is None:
        raise InputError("the policy has no `propagation.detection` section")
    return propagation.detection


def _tell(done: Round) -> None:
    if done.findings or done.left_out:
        typer.echo(f"{len(done.findings)} of {done.saves} saves look poisoned")
    if done.left_out:
        typer.echo(f"guard: no room for {done.left_out} findings; clear some", err=True)
    if done.why_asked:
        typer.echo(f"guard: not withheld: {done.why_asked}", err=True)
    for incident in done.contained:
        typer.echo(f"{incident.id}: contained; `guard incident undo {incident.id} 1` takes it back")


@by_api("GET /api/memory/findings", "POST /api/memory/findings/clear", records=True)
def findings(
    api: AdminApi,
    clear: Annotated[
        list[str] | None, typer.Option("--clear", help="A node that a person has looked at.")
    ] = None,
) -> None:
    """List the saves that look poisoned; sends that follow from them are asked about.

    `guard incident open --node NODE` goes on from one; --clear takes one back.
    """
    if clear:
        api.post("/api/memory/findings/clear", {"tenant": api.tenant, "nodes": clear})
    names = ("node", "p", "credibility", "recognised", "follows")
    found = api.get("/api/memory/findings")["findings"]
    show_table(names, ([one[name] for name in names] for one in found), 120)
