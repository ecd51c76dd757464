"""Serving: the enforcement points, the admin port and the watches of one worker process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import signal
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import AuditError, GuardError, InputError, StateError
from guard.core.metrics import (
    ERRORS,
    FAIL_CLOSED,
    HELD_BYTES,
    OTHER,
)
from guard.core.model import DEFAULT_TENANT, Identity, UserPrompt
from guard.core.policy import EgressLimits
from guard.credentials.key_ring import KeyWatch, follow_keys, key_id, key_watches
from guard.credentials.label_key import recording_key_path
from guard.credentials.write_credentials import WriteCredential, load_write_credentials
from guard.environment import say
from guard.memory.pins import Pins
from guard.pep.stdio.decision_socket import DecisionServer
from guard.processes.child_process import Heartbeat
from guard.processes.listening_ports import ADMIN, DECISIONS, Sockets
from guard.processes.workers import control_socket, last_words, ready_file, ready_line
from guard.runtime.admin_port import AdminServer, HealthReport, PromptChannel, described
from guard.runtime.policy_trial import TrialWatch
from guard.runtime.wiring import Parts, WallClock, assemble, label_key_file
from guard.runtime.worker_reports import Siblings, posts
from guard.settings import UNIX, Settings, read_secret
from guard.store.pin_records import PinOperator
from guard.store.trials import TrialStore
from guard.telemetry.audit_log import AuditLogFile, AuditRetention
from guard.telemetry.recordings import RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from pathlib import Path

    from cryptography.x509 import Certificate

    from guard.pep.lean.pep import LeanPep
    from guard.pep.mitm.master import MitmPep
    from guard.pipeline.guard import Guard

BEAT_SECONDS: Final = 0.1
COLLECTED_AFTER: Final = (10_000, 20, 20)
"""Objects made, and younger collections, after which Python looks for garbage in circles."""
CHECKPOINT_SECONDS: Final = 2.0
RETAIN_SECONDS: Final = 2.0
TRIAL_SECONDS: Final = 1.0
"""Delay between a click and the begin or end of a trial, in seconds."""
PROBE_SECONDS: Final = 1.0
"""Between two looks at a part that has failed."""
PROMPT_SECONDS: Final = 5.0
"""Time that a front end waits until its prompt is stored, in seconds."""


def _client_authorities(parts: Parts) -> list[Certificate]:
    """Return the authorities of clients' certificates; none where clients are not asked for any."""
    proofs = parts.enforcement.credentials.proofs
    if not proofs:
        return []
    from guard.credentials.client_authentication import client_authorities

    return client_authorities(proofs)


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
    peps = _peps(settings, parts, confdir, sockets)
    parts.metrics.set(HELD_BYTES, lambda: sum(pep.held for pep in peps))
    deciding = _decision_server(parts, settings, sockets)
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
    background += map(loop.create_task, _watches(settings, parts, confdir))
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
            words = json.dumps(described(parts.metrics.registry))
            last_words(settings.pulse).write_text(words, encoding="ascii")
        if deciding is not None:
            deciding.close()
        await parts.store.aclose()
        parts.close()


def _watches(settings: Settings, parts: Parts, confdir: Path) -> list[Coroutine[Any, Any, None]]:
    """Return the loops that run beside the traffic."""
    found = [
        parts.recovery.watch(),
        parts.store.watch(),
        _anchor(parts),
        _look_again(parts),
        _retain(settings, parts),
        follow_keys(
            _key_watches(settings, confdir, parts),
            partial(_note_keys, parts),
            partial(parts.metrics.count, ERRORS, OTHER),
        ),
        TrialWatch(
            guard=parts.guard,
            store=TrialStore(parts.store, parts.seal),
            seal=parts.seal,
            audit=parts.audit,
            metrics=parts.metrics,
            now=WallClock.now,
        ).watch(TRIAL_SECONDS),
    ]
    if settings.reload:
        found.append(parts.reloader.watch(settings.reload))
    return found


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


def _peps(
    settings: Settings, parts: Parts, directory: Path, sockets: Sockets
) -> list[LeanPep | MitmPep]:
    """Return the enforcement points of every listener.

    Raises:
        GuardError: a file cannot be used.
    """
    trust = None
    if settings.upstream_ca:
        from guard.credentials.authority import joined_trust

        trust = joined_trust(settings.upstream_ca, directory)
    credentials = load_write_credentials(settings.write_credentials, settings.forward)
    is_fronted = bool(settings.listen)
    peps: list[LeanPep | MitmPep] = []
    if settings.listeners:
        tls = None
        if not is_fronted and (authorities := _client_authorities(parts)):
            from guard.pep.lean.client_tls import ClientTls

            tls = ClientTls(settings.authority, authorities)
        from guard.pep.envoy.front import Front
        from guard.pep.lean.pep import LeanPep
        from guard.pep.lean.upstream_requests import Inbound, Outbound

        secret = read_secret(settings.front_secret) if settings.front_secret else ""
        if settings.egress and any(one.certificate is not None for one in credentials.values()):
            raise InputError(
                "a store's write certificate cannot be shown through --egress: leave it out"
            )
        lean = LeanPep(
            parts.enforcement,
            parts.metrics,
            settings.listeners,
            Inbound(
                sockets,
                tls,
                Front(settings.listeners, secret) if is_fronted else None,
                settings.listen,
                settings.connections,
                settings.held_limit,
            ),
            Outbound(credentials, trust, settings.egress.removeprefix(UNIX)),
        )
        peps.append(lean)
    if settings.forward:
        peps.append(_mitm(settings, parts, trust, credentials, sockets))
    return peps


def _mitm(
    settings: Settings,
    parts: Parts,
    trust: Path | None,
    credentials: Mapping[str, WriteCredential],
    sockets: Sockets,
) -> MitmPep:
    """Return mitmproxy, which serves forward listeners."""
    # mitmproxy takes most of a start; a guard without a wire does without it.
    from guard.credentials.authority import ensure_authority
    from guard.pep.mitm.addon import GuardAddon
    from guard.pep.mitm.forward import ForwardAddon
    from guard.pep.mitm.master import MitmPep, build_master

    def egress() -> EgressLimits:
        policy = parts.guard.policy
        return policy.egress if policy else EgressLimits()

    ensure_authority(settings.authority)
    forward = ForwardAddon(
        parts.enforcement, parts.metrics, egress, authorization=settings.upstream_authorization
    )
    addon = GuardAddon(parts.enforcement, parts.metrics, forward, credentials)
    master = build_master(
        addon,
        settings.modes,
        confdir=settings.authority,
        body_limit=settings.body_limit,
        held_limit=settings.held_limit,
        trust=trust,
        ask_certificates=bool(_client_authorities(parts)),
        sockets=sockets,
    )
    return MitmPep(master, addon)


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


def _decision_server(parts: Parts, settings: Settings, sockets: Sockets) -> DecisionServer | None:
    if settings.decisions is None:
        return None

    def digest() -> str:
        policy = parts.guard.policy
        return policy.digest if policy is not None else ""

    listener = next(iter(sockets.get(DECISIONS, ())), None)
    return DecisionServer(
        parts.enforcement,
        digest,
        settings.decisions,
        listener,
        parts.probe.wrapped,
        settings.workers,
    )


def _key_watches(settings: Settings, confdir: Path, parts: Parts) -> list[KeyWatch]:
    """Return what has the parts use the keys of their rings as they change."""
    now = WallClock.now
    label_key = label_key_file(settings, confdir)
    found = key_watches(label_key, parts.seal, settings.audit_key, parts.audit, now)
    for one in parts.recorders:
        if isinstance(one, RecordingWriter):
            path = settings.record_key or recording_key_path()
            found.append(KeyWatch(path, "recording key", one.use_keys, now))
    return found


def _note_keys(parts: Parts, what: str, keys: list[bytes]) -> None:
    """Record that other keys are used from now on."""
    parts.audit.event("guard.keys", {"what": what, "used": key_id(keys[0]), "accepted": len(keys)})


async def _retain(settings: Settings, parts: Parts) -> None:
    """Set the audit log aside and remove it as the policy in force says, again and again."""
    if settings.audit is None or not isinstance(parts.audit, AuditLogFile):
        return

    def keep() -> int:
        policy = parts.guard.policy
        return policy.limits.audit if policy is not None else 0

    retention = AuditRetention(parts.audit, settings.audit, keep, WallClock.now)
    with contextlib.closing(retention):
        while True:
            try:
                retention.follow()
                for fields in await asyncio.to_thread(retention.remove_old):
                    retention.removed(fields)
            except (AuditError, OSError) as error:
                parts.metrics.count(ERRORS, "audit")
                say(f"the audit log is kept as it is: {error}")
            await asyncio.sleep(RETAIN_SECONDS)


async def _anchor(parts: Parts) -> None:
    """Sign the audit log again and again, and keep the last checkpoint in the store as well."""
    while True:
        await asyncio.sleep(CHECKPOINT_SECONDS)
        note = await asyncio.to_thread(parts.audit.checkpoint)
        if note is not None:
            # Redis gone: the next checkpoint covers more, and calls see it by themselves.
            with contextlib.suppress(StateError):
                await parts.store.keep_anchor(note)


async def _look_again(parts: Parts) -> None:
    """Try what has failed, so that a guard without traffic says when it is ready again."""
    while True:
        await asyncio.sleep(PROBE_SECONDS)
        failing = parts.metrics.failing()
        if "state" in failing:
            with contextlib.suppress(GuardError):
                await parts.store.probe()
                parts.metrics.set(FAIL_CLOSED, 0, "state")
        if "audit" in failing:
            with contextlib.suppress(GuardError):
                parts.audit.event("guard.audit_writable", {})
                parts.metrics.set(FAIL_CLOSED, 0, "audit")


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
