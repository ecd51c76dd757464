"""Serving: the enforcement points, the admin port and the watches of one worker process."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import generate_latest

from guard.core.metrics import HELD_BYTES
from guard.core.model import DEFAULT_TENANT, Identity, UserPrompt
from guard.memory.pins import Pins
from guard.processes.child_process import Heartbeat
from guard.processes.listening_ports import ADMIN, Sockets
from guard.processes.workers import control_socket, last_words, ready_file, ready_line
from guard.runtime.admin_port import AdminServer, HealthReport, PromptChannel
from guard.runtime.enforcement_points import decision_server, listeners_of
from guard.runtime.watches import watches
from guard.runtime.wiring import Parts, WallClock, assemble
from guard.runtime.worker_reports import Siblings, posts
from guard.store.pin_records import PinOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from guard.pipeline.guard import Guard
    from guard.settings import Settings

BEAT_SECONDS: Final = 0.1
COLLECTED_AFTER: Final = (10_000, 20, 20)
"""Objects made, and younger collections, after which Python looks for garbage in circles."""
PROMPT_SECONDS: Final = 5.0
"""Time that a front end waits until its prompt is stored, in seconds."""


def _prompt_digests(settings: Settings) -> Mapping[str, str]:
    """Return who may report prompts, with the digest of each one's secret.

    Raises:
        GuardError: the file cannot be used.
    """
    if settings.prompt_credentials is None:
        return {}
    from guard.credentials.client_authentication import load_digests

    return load_digests(settings.prompt_credentials)


def _is_served(settings: Settings, upstream: str) -> bool:
    """Return whether a listener leads to an upstream, by its host and port."""
    if settings.forward:
        return True
    served = (listener.upstream.partition("://") for listener in settings.listeners)
    ports = {"http": ":80", "https": ":443"}
    return any(upstream in {place, place + ports[scheme]} for scheme, _, place in served)


def _collect_seldom() -> None:
    """Have Python's collector leave alone what is loaded by now: it lives as long as the process.

    Connections and calls hold each other in no circles, so it may look seldom.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)
    gc.enable()


def _on_signals(
    stopping: asyncio.Event, parts: Parts, background: list[asyncio.Task[object]]
) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, _on_hangup, parts, background)


async def serve(
    settings: Settings,
    redis_url: str,
    confdir: Path,
    reached: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain.

    Raises:
        GuardError: a part cannot be used; nothing was served.
    """
    pulse = Heartbeat(settings.pulse) if settings.pulse else None
    parts = assemble(settings, redis_url, pulse, confdir, reached)
    await parts.store.verify()
    pins = PinOperator(parts.store, Pins(parts.seal))
    await pins.note_offers(parts.guard.calls.offers, partial(_is_served, settings))
    sockets = {
        name: [socket.socket(fileno=number) for number in numbers]
        for name, numbers in settings.sockets.items()
    }
    peps = listeners_of(settings, parts, confdir, sockets)
    parts.metrics.set(HELD_BYTES, lambda: sum(pep.held for pep in peps))
    deciding = decision_server(parts, settings, sockets)
    loop = asyncio.get_running_loop()
    admin = _admin_server(settings, parts, sockets, loop)
    if settings.workers > 1 and settings.pulse is not None:
        siblings = Siblings(settings.pulse)
        parts.enforcement.elsewhere = siblings.send_into
        parts.enforcement.responses.on_offers(siblings.offer)
        # Offers that others saw before this worker listened are pinned by now.
        await pins.note_offers(parts.guard.calls.offers, partial(_is_served, settings))
    stopping = asyncio.Event()
    background: list[asyncio.Task[object]] = []
    _on_signals(stopping, parts, background)
    # Before a write can be committed, this worker counts as alive.
    await parts.recovery.beat()
    background += map(loop.create_task, watches(settings, parts, confdir))
    try:
        addresses = [address for pep in peps for address in await pep.open()]
        if deciding is not None:
            await deciding.start()
        _announce(addresses, admin, parts, settings)
        _collect_seldom()
        if pulse:
            # Last: the supervisor does not replace a worker that could not start.
            background.append(loop.create_task(_beat(pulse, parts.guard, settings.heartbeat)))
        ends = [loop.create_task(one) for one in (stopping.wait(), *(p.ended() for p in peps))]
        background += ends
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if parts.enforcement.holding is not None:
            parts.enforcement.holding.stop()
        await asyncio.gather(*(pep.drain(settings.drain) for pep in peps))
    finally:
        await asyncio.gather(*(pep.close() for pep in peps))
        for task in background:
            task.cancel()
        admin.close()
        if settings.workers > 1 and settings.pulse is not None:
            last_words(settings.pulse).write_bytes(generate_latest(parts.metrics.registry))
        if deciding is not None:
            deciding.close()
        await parts.store.aclose()
        parts.close()


def _admin_server(
    settings: Settings, parts: Parts, sockets: Sockets, loop: asyncio.AbstractEventLoop
) -> AdminServer:
    tenant_of = parts.enforcement.credentials.tenant_of
    return AdminServer(
        *settings.admin_address,
        parts.metrics.registry,
        lambda: _health(parts),
        PromptChannel(_prompt_digests(settings), _note(parts.guard, tenant_of, loop)).answer,
        listener=_admin_listener(settings, sockets),
        posts=posts(parts.enforcement, parts.guard.calls.offers, loop, PROMPT_SECONDS),
    )


def _admin_listener(settings: Settings, sockets: Sockets) -> socket.socket | None:
    """Return what the admin port listens on: of several workers, its supervisor's eyes only."""
    if settings.workers == 1 or settings.pulse is None:
        return next(iter(sockets.get(ADMIN, ())), None)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(str(control_socket(settings.pulse)))
    made.listen()
    return made


def _note(
    guard: Guard, tenant_of: Callable[[str], str] | None, loop: asyncio.AbstractEventLoop
) -> Callable[[str, str, UserPrompt], None]:
    """Return how the admin port's threads pass a prompt to the guard on its own loop."""

    def note(principal: str, session: str, prompt: UserPrompt) -> None:
        tenant = DEFAULT_TENANT if tenant_of is None else tenant_of(principal)
        identity = Identity(principal, session, tenant)
        heard = guard.notes.prompt(identity, prompt, WallClock().now())
        asyncio.run_coroutine_threadsafe(heard, loop).result(PROMPT_SECONDS)

    return note


def _on_hangup(parts: Parts, background: list[asyncio.Task[object]]) -> None:
    """Open the audit log anew and try the policy files at once."""
    background[:] = [task for task in background if not task.done()]
    background.append(asyncio.get_running_loop().create_task(parts.reloader.reload()))
    parts.audit.reopen()


_STUCK: Final = 6
"""Heartbeats for which one large message may be judged, beside others that are."""


async def _beat(pulse: Heartbeat, guard: Guard, limit: float) -> None:
    while True:
        # A thread that never ends costs the worker, as the loop would.
        if not guard.threads.is_stuck(_STUCK * limit):
            pulse.beat()
        await asyncio.sleep(BEAT_SECONDS)


def _health(parts: Parts) -> HealthReport:
    failing = parts.metrics.failing()
    return HealthReport(not failing, dict.fromkeys(failing, "failing closed"))


def _announce(addresses: list[str], admin: AdminServer, parts: Parts, settings: Settings) -> None:
    """Say that this worker serves: to operators, or to the supervisor of several."""
    listening = " ".join(addresses)
    policy = parts.policy
    name = f"{policy.name} ({policy.mode.value}) digest {policy.digest[:12]}"
    if settings.workers > 1 and settings.pulse is not None:
        found = json.dumps({"listening": listening, "policy": name})
        ready_file(settings.pulse).write_text(found, encoding="utf-8")
        return
    line = ready_line(listening, (admin.host, admin.port), name)
    print(line, file=sys.stderr, flush=True)  # noqa: T201  (the line operators and scripts wait for)
