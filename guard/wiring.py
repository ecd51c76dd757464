"""The composition root: from settings to a guard that serves.

The only module that knows every part.  ``serve`` is what a worker process runs; replays
and the benchmarks join the same parts without a proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import json
import secrets
import shlex
import signal
import socket
import ssl
import sys
import time
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

import certifi

from guard.adapters.admin_port import AdminServer, HealthReport, PromptChannel, described
from guard.adapters.audit_log import AuditLogFile, open_audit_log
from guard.adapters.audit_retention import AuditRetention
from guard.adapters.credentials.key_ring import (
    KeyWatch,
    audit_signer,
    key_id,
    load_ring,
    load_seal,
    signer_of,
)
from guard.adapters.credentials.label_key import (
    audit_key_path,
    label_key_path,
    recording_key_path,
)
from guard.adapters.credentials.write_credentials import load_write_credentials
from guard.adapters.login import ServerLogin
from guard.adapters.memory_stores.checker import CommandChecker
from guard.adapters.memory_stores.fate_probe import StoreProbe
from guard.adapters.memory_stores.recovery import Owner, Recovery
from guard.adapters.metrics import PrometheusMetrics
from guard.adapters.onnx import load_models
from guard.adapters.policy_reload import PolicyFiles, PolicyReloader
from guard.adapters.policy_trial import TrialWatch
from guard.adapters.processes.child_process import Heartbeat
from guard.adapters.processes.listening_ports import ADMIN, DECISIONS, Sockets
from guard.adapters.processes.separate_process import CallReader, ResultReader, SeparateProcess
from guard.adapters.processes.siblings import Siblings, posts
from guard.adapters.processes.worker_files import (
    control_socket,
    last_words,
    ready_file,
    ready_line,
)
from guard.adapters.recordings import Limits as RecordingLimits
from guard.adapters.recordings import RecordingWriter
from guard.adapters.redis.answers import RedisAnswers
from guard.adapters.redis.continuity import ContinuityNote, ContinuityReport, ContinuityWatch
from guard.adapters.redis.ledger import RedisLedger
from guard.adapters.redis.operators import LabelOperator, PinOperator
from guard.adapters.redis.shared_texts import RedisSharedTexts
from guard.adapters.redis.staging import RedisStaging
from guard.adapters.redis.store import RedisSessionStore
from guard.adapters.redis.topology import open_client
from guard.adapters.redis.trials import TrialStore
from guard.adapters.stdio.decision_socket import DecisionServer
from guard.adapters.unlabelled_marks import DiskMarks
from guard.core.errors import AuditError, GuardError, InputError, StateError
from guard.core.metrics import (
    AUDIT_LINES,
    CALLS_AWAITED,
    ERRORS,
    FAIL_CLOSED,
    HELD_BYTES,
    OTHER,
    PREFIX_SCORE_EXPECTED,
    REQUESTS_WAITING,
    SPANS_LOST,
    UNLABELLED_MARKS,
    WORKER_RESTARTS,
)
from guard.core.model import DEFAULT_TENANT, Identity
from guard.core.policy import EgressLimits
from guard.decision.decision_log import Records
from guard.decision.guard import Guard
from guard.decision.large_work import OtherProcesses
from guard.decision.stores import Stores
from guard.decision.unlabelled_marks import MemoryMarks
from guard.detectors import DetectorResources, create_detectors
from guard.detectors.prefix_classifier import MODEL as PREFIX_MODEL
from guard.enforcement.admission import Limits
from guard.enforcement.declarations import DeclarationHandler
from guard.enforcement.elicitation import Elicitor
from guard.enforcement.handlers import Enforcement
from guard.enforcement.identity import Credentials
from guard.enforcement.parts import Options, People, Telemetry
from guard.enforcement.shared_exchanges import StoredExchanges
from guard.memory_gate.candidate import LabelledEvidence
from guard.memory_gate.write_path import WritePath
from guard.protocols.base import ProtocolResources, discover_protocols
from guard.settings import (
    EMBEDDED,
    UNIX,
    PepKind,
    child_environment,
    models_directory,
    read_secret,
)
from guard.tool_pins.pins import Pins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from guard.adapters.audit_log import NoAuditLog
    from guard.adapters.credentials.tenants import Tenants
    from guard.adapters.credentials.write_credentials import WriteCredential
    from guard.adapters.otel import SpanRecorder
    from guard.adapters.redis.connection import RedisClient
    from guard.core.metrics import Metrics
    from guard.core.policy import Policy, StateLimits
    from guard.core.ports import AuditLog, Clock
    from guard.decision.unlabelled_marks import UnlabelledMarks
    from guard.enforcement.identity import Login, Proof
    from guard.provenance.seal import Seal
    from guard.settings import Settings

BEAT_SECONDS: Final = 0.1
COLLECTED_AFTER: Final = (10_000, 20, 20)
"""Objects made, and younger collections, after which Python looks for garbage in circles."""
CHECKPOINT_SECONDS: Final = 2.0
KEY_SECONDS: Final = 1.0
RETAIN_SECONDS: Final = 2.0
TRIAL_SECONDS: Final = 1.0
"""How long after a click a trial begins, ends or goes on."""
PROBE_SECONDS: Final = 1.0
"""Between two looks at a part that has failed."""
PROMPT_SECONDS: Final = 5.0
"""How long a front end waits until its prompt is stored."""


class Pep(Protocol):
    """An enforcement point as :func:`serve` starts and ends it."""

    async def open(self) -> list[str]:
        """Listen, and return the addresses."""

    async def ended(self) -> None:
        """Wait until it has failed as a whole."""

    async def drain(self, seconds: float) -> None:
        """Stop listening, then give the calls in flight their time."""

    @property
    def held(self) -> int:
        """Bytes of unfinished messages and of answers that clients have yet to read."""

    async def close(self) -> None:
        """End every connection."""


class WallClock:
    """Time as the machine tells it."""

    now = staticmethod(time.time)  # noqa: TID251  (this is the clock that everything else is given)
    """Return seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything one worker is made of."""

    guard: Guard
    enforcement: Enforcement
    store: RedisSessionStore
    metrics: PrometheusMetrics
    audit: AuditLogFile | NoAuditLog
    policy: Policy
    """The policy it started with."""
    reloader: PolicyReloader
    recovery: Recovery
    probe: StoreProbe
    seal: Seal
    """The deployment's."""
    recorders: tuple[RecordingWriter | SpanRecorder, ...]

    def close(self) -> None:
        """Write what waits, and close the files."""
        for recorder in self.recorders:
            recorder.close()
        self.audit.close()


def assemble(  # noqa: PLR0913  (it is the composition root)
    settings: Settings,
    redis_url: str,
    pulse: Heartbeat | None = None,
    confdir: Path | None = None,
    reached: Callable[[str], None] = lambda _: None,
    clock: Clock | None = None,
    client: RedisClient | None = None,
) -> Parts:
    """Join the parts; ``reached`` is told of each step of a memory write.

    Without a ``clock`` the time is the machine's.  A ``client`` is used instead of the URL.

    Raises:
        GuardError: a policy, model, credential file or audit log that cannot be used.
    """
    clock = clock or WallClock()
    files = PolicyFiles(settings.policy, confdir)
    policy = files.first()
    models = load_models(settings.models or models_directory())
    digests = {name: model.digest for name, model in models.items()}
    metrics = PrometheusMetrics(policy, digests)
    metrics.set(WORKER_RESTARTS, settings.restarts)
    if PREFIX_MODEL in models:
        for bound, share in models[PREFIX_MODEL].expected_scores.items():
            metrics.set(PREFIX_SCORE_EXPECTED, share, str(float(bound)))
        metrics.set(PREFIX_SCORE_EXPECTED, 1, "+Inf")
    signer = audit_signer(settings.audit_key) if settings.audit is not None else None
    audit = open_audit_log(settings.audit, signer=signer)
    if isinstance(audit, AuditLogFile):
        metrics.set(AUDIT_LINES, lambda: audit.size)
    client = client or open_client(
        redis_url, timeout=settings.state_timeout, durability=settings.durability
    )
    store, seal = label_store(settings, client, confdir, policy.limits, audit, metrics, clock.now)
    recorders = _recorders(settings, metrics)
    tenants = _tenants(settings)
    names = () if tenants is None else tenants.names
    memory = memory_parts(settings, policy, store.client, seal, audit, metrics, reached, names)
    marks = _marks(settings, redis_url, confdir)
    metrics.set(UNLABELLED_MARKS, marks.total)
    guard = Guard(
        policy,
        Stores(store, marks=marks, ledger=RedisLedger(store), memories=memory.probe.again),
        Records(audit, metrics, recorders=recorders, model_digests=digests),
        detectors=create_detectors(DetectorResources(models)),
        seal=seal,
        memory=memory.path,
        processes=_processes(pulse),
    )
    login = _login(settings, seal, audit, clock)
    enforcement = Enforcement(
        guard=guard,
        protocols=discover_protocols(
            ProtocolResources(
                policy=partial(attrgetter("policy"), guard),
                endpoints={x.key: x.endpoint for x in settings.listeners if x.endpoint},
            )
        ),
        telemetry=Telemetry(audit, metrics, clock),
        credentials=Credentials(
            _proofs(settings, clock),
            {x.key: x.principal for x in settings.listeners if x.principal},
            login,
            None if tenants is None else tenants.of,
        ),
        declarations=DeclarationHandler(guard, store, seal, metrics, clock),
        people=People(
            RedisAnswers(store),
            Elicitor(
                approvals=partial(LabelOperator, store, seal, policy.limits),
                seal=seal,
                policy=partial(attrgetter("policy"), guard),
                clock=clock,
                audit=audit,
                metrics=metrics,
                page=settings.console_page,
            ),
        ),
        shared=_shared_exchanges(settings, guard, store.client, seal, metrics),
        options=Options(
            settings.body_limit,
            settings.model_api,
            Limits(
                settings.concurrency,
                settings.queue,
                settings.queue_timeout,
                settings.connections // 2 if settings.concurrency else 0,
            ),
        ),
    )
    metrics.set(CALLS_AWAITED, enforcement.in_flight.awaited)
    metrics.set(REQUESTS_WAITING, lambda: enforcement.admission.waiting)

    def swap(fresh: Policy) -> None:
        store.set_limits(fresh.limits)
        guard.swap_policy(fresh)

    reloader = PolicyReloader(
        files=files, current=lambda: guard.policy, swap=swap, audit=audit, metrics=metrics
    )
    recovery = memory.recovery
    return Parts(
        guard, enforcement, store, metrics, audit, policy, reloader, recovery, memory.probe, seal,
        recorders,
    )  # fmt: skip


def _processes(pulse: Heartbeat | None) -> OtherProcesses:
    """Return the functions that run in other processes; threads serve without a supervisor."""
    if pulse is None:
        return OtherProcesses()
    results, calls = ResultReader(), CallReader()
    return OtherProcesses(
        read_calls=calls.read,
        measure=calls.measure,
        read_result=results.read,
        scan=results.run,
        select=SeparateProcess().run,
        judging=pulse.judging,
    )


def _marks(settings: Settings, redis_url: str, confdir: Path | None) -> UnlabelledMarks:
    """Return where marks of unlabelled results are kept: as long as the store, for all workers."""
    if settings.redis == EMBEDDED and settings.data is None:
        if settings.pulse is None:
            return MemoryMarks()
        return _disk_marks(settings.pulse.with_name("marks"))
    key = label_key_path(settings.label_key, confdir / "label.key" if confdir else None)
    where = settings.data if settings.redis == EMBEDDED else redis_url
    store = hashlib.sha256(str(where).encode()).hexdigest()[:16]
    return _disk_marks(key.with_name(f"{key.name}.{store}-marks"))


def _disk_marks(path: Path) -> UnlabelledMarks:
    """Return marks on disk.

    Raises:
        GuardError: they cannot be kept there.
    """
    try:
        return DiskMarks(path)
    except OSError as error:
        msg = f"marks of results cannot be kept in `{path}`: {error.strerror}"
        raise GuardError(msg) from error


def _shared_exchanges(
    settings: Settings, guard: Guard, client: RedisClient, seal: Seal, metrics: Metrics
) -> StoredExchanges | None:
    """Return what this worker shares with others; None where there is no other."""
    if settings.workers == 1 and settings.redis == EMBEDDED:
        return None
    texts = RedisSharedTexts(client)
    return StoredExchanges(texts, seal, lambda: guard.policy, metrics, guard.calls.classified)


def _proofs(settings: Settings, clock: Clock) -> Sequence[Proof]:
    """Return how clients can prove who they are.

    Raises:
        GuardError: the file cannot be used.
    """
    if settings.credentials is None:
        return ()
    # With its readers of tokens and certificates, which take megabytes.
    from guard.adapters.credentials.client_authentication import load_proofs

    return load_proofs(settings.credentials, clock.now)


def _tenants(settings: Settings) -> Tenants | None:
    """Return which tenant each principal is of, None where there is one.

    Raises:
        GuardError: the file cannot be used.
    """
    if settings.credentials is None:
        return None
    from guard.adapters.credentials.client_authentication import load_tenants

    return load_tenants(settings.credentials)


def _asks_certificates(parts: Parts) -> bool:
    """Return whether clients are asked for certificates."""
    proofs = parts.enforcement.credentials.proofs
    if not proofs:
        return False
    from guard.adapters.credentials.client_authentication import asks_certificates

    return asks_certificates(proofs)


def _prompt_digests(settings: Settings) -> Mapping[str, str]:
    """Return who may report prompts, with the digest of each one's secret.

    Raises:
        GuardError: the file cannot be used.
    """
    if settings.prompt_credentials is None:
        return {}
    from guard.adapters.credentials.client_authentication import load_digests

    return load_digests(settings.prompt_credentials)


def _login(settings: Settings, seal: Seal, audit: AuditLog, clock: Clock) -> Login | None:
    """Return what logs clients in at the servers of reverse listeners, None without listeners."""
    if not settings.listeners:
        return None

    def trust() -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=certifi.where())
        if settings.upstream_ca is not None:
            context.load_verify_locations(settings.upstream_ca)
        return context

    return ServerLogin(
        settings.listeners,
        settings.authorization_server,
        seal=seal,
        audit=audit,
        clock=clock.now,
        trust=trust,
    )


def _recorders(settings: Settings, metrics: Metrics) -> tuple[RecordingWriter | SpanRecorder, ...]:
    """Return what keeps, or tells of, whole exchanges, where the operator wants that.

    Raises:
        InputError: spans are wanted, and OpenTelemetry is not installed.
    """
    found: list[RecordingWriter | SpanRecorder] = []
    if settings.record is not None:
        ring = load_ring(settings.record_key or recording_key_path(), "recording key")
        key = ring.in_use(WallClock.now())[0]
        limits = RecordingLimits(settings.record_limit, settings.record_days * 24 * 3600)
        found.append(RecordingWriter(settings.record, key, metrics, limits))
    if settings.otlp:
        try:
            from guard.adapters.otel import SpanRecorder
        except ImportError as error:
            msg = "spans need OpenTelemetry: pip install agent-egress-guard[otel]"
            raise InputError(msg) from error
        found.append(SpanRecorder(settings.otlp, partial(metrics.count, SPANS_LOST)))
    return tuple(found)


def label_store(  # noqa: PLR0913  (as the composition root)
    settings: Settings,
    client: RedisClient,
    confdir: Path | None,
    limits: StateLimits,
    audit: AuditLog,
    metrics: PrometheusMetrics,
    now: Callable[[], float],
) -> tuple[RedisSessionStore, Seal]:
    """Return the store, which knows when it has lost labels, and the deployment's seal.

    Raises:
        GuardError: a file beside the label key cannot be used.
    """
    kept, path = _is_kept(settings), _label_key(settings, confdir)
    seal = load_seal(path, now())
    if client.ends_with_object:
        # Whoever opened it knows.
        return RedisSessionStore(client, limits=limits), seal
    continuity = ContinuityWatch(
        client,
        seal=seal,
        note=ContinuityNote(path, _store_name(settings)),
        now=now,
        told=ContinuityReport(audit, metrics, kept=kept),
        kept=kept,
    )
    return RedisSessionStore(client, limits=limits, continuity=continuity), seal


def _is_kept(settings: Settings) -> bool:
    return settings.redis != EMBEDDED or settings.data is not None


def _label_key(settings: Settings, confdir: Path | None) -> Path:
    """Return the key file of labels."""
    # Labels of an embedded Redis need their key no longer than they live.
    for_this_run = confdir / "label.key" if confdir and not _is_kept(settings) else None
    return label_key_path(settings.label_key, for_this_run)


def _store_name(settings: Settings) -> str:
    """Return what kind of store it is, as the note beside the label key has it."""
    if settings.redis != EMBEDDED:
        return "redis"
    return EMBEDDED if settings.data is None else "data"


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """What the gate is made of."""

    path: WritePath
    recovery: Recovery
    probe: StoreProbe


def memory_parts(  # noqa: PLR0913  (as the composition root)
    settings: Settings,
    policy: Policy,
    client: RedisClient,
    seal: Seal,
    audit: AuditLog,
    metrics: Metrics,
    reached: Callable[[str], None],
    tenants: Sequence[str] = (),
) -> MemoryParts:
    """Join the parts of the memory gate."""
    # Without a supervisor nobody knows what this worker's predecessor was called.
    owner = settings.owner or f"{secrets.token_hex(8)}:0"
    path = WritePath(
        policy=policy,
        staging=RedisStaging(client, owner=owner, seal=seal),
        evidence=LabelledEvidence,
        audit=audit,
        metrics=metrics,
        checker=CommandChecker(shlex.split(settings.memory_checker), child_environment([]))
        if settings.memory_checker
        else None,
        reached=reached,
    )
    upstreams = {listener.key: listener.upstream for listener in settings.listeners}
    probe = StoreProbe(upstreams, settings.upstream_ca)
    recovery = Recovery(
        Owner(client, owner),
        memory=lambda: path.gated,
        holds=path.is_committed,
        ask=probe.ask,
        audit=audit,
        metrics=metrics,
        tenants=tenants,
    )
    return MemoryParts(path, recovery, probe)


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
    peps = _measured(_peps(settings, parts, confdir, sockets), parts)
    deciding = _decision_server(parts, settings, sockets)
    loop = asyncio.get_running_loop()
    admin = AdminServer(
        *settings.admin_address,
        parts.metrics,
        lambda: _health(parts),
        PromptChannel(
            _prompt_digests(settings),
            _note(parts.guard, parts.enforcement.credentials.tenant_of, loop),
        ),
        listener=_admin_listener(settings, sockets),
        posts=posts(parts.enforcement, parts.guard.calls.offers, loop, PROMPT_SECONDS),
    )
    if settings.workers > 1 and settings.pulse is not None:
        siblings = Siblings(settings.pulse)
        parts.enforcement.elsewhere = siblings.send_into
        parts.enforcement.responses.on_offers(siblings.offer)
        # What others were told of before this worker could be told is pinned by now.
        await pins.note_offers(parts.guard.calls.offers, partial(_is_served, settings))
    stopping = asyncio.Event()
    background: list[asyncio.Task[object]] = []
    _on_signals(stopping, parts, background)
    # Before a write can be committed, this worker counts as alive.
    await parts.recovery.beat()
    background += map(
        loop.create_task,
        (
            parts.recovery.watch(),
            parts.store.watch(),
            _anchor(parts),
            _look_again(parts),
            _retain(settings, parts),
            _watch_keys(parts, _key_watches(settings, confdir, parts)),
            _trials(parts, confdir).watch(TRIAL_SECONDS),
        ),
    )
    if settings.reload:
        background.append(loop.create_task(parts.reloader.watch(settings.reload)))
    try:
        addresses = [address for pep in peps for address in await pep.open()]
        if deciding is not None:
            await deciding.start()
        _announce(addresses, admin, parts, settings)
        _collect_seldom()
        if pulse:
            # Only now: what ends before it could not start, and another would not either.
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
        await parts.probe.aclose()
        await parts.store.aclose()
        parts.close()


def _admin_listener(settings: Settings, sockets: Sockets) -> socket.socket | None:
    """Return what the admin port listens on: of several workers, its supervisor's eyes only."""
    if settings.workers == 1 or settings.pulse is None:
        return next(iter(sockets.get(ADMIN, ())), None)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(str(control_socket(settings.pulse)))
    made.listen()
    return made


def _trials(parts: Parts, directory: Path) -> TrialWatch:
    return TrialWatch(
        guard=parts.guard,
        store=TrialStore(parts.store, parts.seal),
        seal=parts.seal,
        directory=directory,
        audit=parts.audit,
        metrics=parts.metrics,
        now=WallClock.now,
    )


def _measured(peps: list[Pep], parts: Parts) -> list[Pep]:
    """Return the enforcement points, whose held bytes are shown from now on."""
    parts.metrics.set(HELD_BYTES, lambda: sum(pep.held for pep in peps))
    return peps


def _peps(settings: Settings, parts: Parts, directory: Path, sockets: Sockets) -> list[Pep]:
    """Return the enforcement points of every listener.

    Raises:
        GuardError: a file cannot be used, or the lean one cannot do what is asked of it.
    """
    trust = None
    if settings.upstream_ca:
        from guard.adapters.credentials.authority import joined_trust

        trust = joined_trust(settings.upstream_ca, directory)
    credentials = load_write_credentials(settings.write_credentials, settings.forward)
    asking = _asks_certificates(parts)
    is_fronted = bool(settings.listen)
    wants_mitm = settings.pep is PepKind.MITMPROXY or (settings.pep is PepKind.AUTO and asking)
    if wants_mitm and not is_fronted:
        return [_mitm(settings, parts, directory, trust, credentials, sockets)]
    peps: list[Pep] = []
    if settings.listeners:
        if asking and not is_fronted:
            msg = "certificates of clients need a listener that speaks TLS: --pep mitmproxy"
            raise InputError(msg)
        from guard.adapters.envoy.front import Front
        from guard.adapters.lean.pep import Inbound, LeanPep, Outbound

        secret = read_secret(settings.front_secret) if settings.front_secret else ""
        if settings.egress and any(one.certificate is not None for one in credentials.values()):
            msg = "a store's write certificate cannot be shown through --egress: leave it out"
            raise InputError(msg)
        lean = LeanPep(
            parts.enforcement,
            parts.metrics,
            settings.listeners,
            Inbound(
                sockets,
                Front(settings.listeners, secret) if is_fronted else None,
                settings.listen,
                settings.connections,
                settings.held_limit,
            ),
            Outbound(credentials, trust, settings.egress.removeprefix(UNIX)),
        )
        peps.append(lean)
    if settings.forward:
        only = settings.model_copy(update={"reverse": []})
        peps.append(_mitm(only, parts, directory, trust, credentials, sockets))
    return peps


def _mitm(
    settings: Settings,
    parts: Parts,
    directory: Path,
    trust: Path | None,
    credentials: Mapping[str, WriteCredential],
    sockets: Sockets,
) -> Pep:
    """Return mitmproxy; the authority that opens TLS exists only where a forward listener does."""
    # mitmproxy takes most of a start; a guard without a wire does without it.
    from guard.adapters.credentials.authority import ensure_authority
    from guard.adapters.mitm.addon import GuardAddon
    from guard.adapters.mitm.forward import ForwardAddon
    from guard.adapters.mitm.master import MitmPep, build_master
    from guard.adapters.routes import Routes

    def egress() -> EgressLimits:
        policy = parts.guard.policy
        return policy.egress if policy else EgressLimits()

    confdir = directory
    asking = _asks_certificates(parts)
    if settings.forward or asking:
        confdir = settings.authority
        ensure_authority(confdir)
    forward = ForwardAddon(
        parts.enforcement,
        parts.metrics,
        egress,
        authorization=settings.upstream_authorization,
        routes=Routes(settings.listeners),
    )
    trusted = [one.port for one in settings.listeners if one.trusts_forwarded]
    addon = GuardAddon(parts.enforcement, parts.metrics, forward, credentials, trust, trusted)
    master = build_master(
        addon,
        settings.modes,
        confdir=confdir,
        body_limit=settings.body_limit,
        held_limit=settings.held_limit,
        trust=trust,
        ask_certificates=asking,
        sockets=sockets,
    )
    return MitmPep(master, addon)


def _note(
    guard: Guard, tenant_of: Callable[[str], str] | None, loop: asyncio.AbstractEventLoop
) -> Callable[[str, str, str], None]:
    """Return how the admin port's threads pass a prompt to the guard on its own loop."""

    def note(principal: str, session: str, text: str) -> None:
        tenant = DEFAULT_TENANT if tenant_of is None else tenant_of(principal)
        identity = Identity(principal, session, tenant)
        heard = guard.notes.prompt(identity, text, WallClock().now())
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
        parts.enforcement, digest, settings.decisions, listener, parts.probe.wrapped
    )


def _key_watches(settings: Settings, confdir: Path, parts: Parts) -> tuple[KeyWatch, ...]:
    """Return what has the parts use the keys of their rings as they change."""
    now = WallClock.now
    found = [KeyWatch(_label_key(settings, confdir), "label key", parts.seal.rotate, now)]
    if settings.audit is not None:
        audit, path = parts.audit, settings.audit_key or audit_key_path()
        use = lambda keys: audit.use_signer(signer_of(keys))  # noqa: E731  (one line of glue)
        found.append(KeyWatch(path, "audit key", use, now))
    for one in parts.recorders:
        if isinstance(one, RecordingWriter):
            path = settings.record_key or recording_key_path()
            found.append(KeyWatch(path, "recording key", partial(_use_first, one), now))
    return tuple(found)


def _use_first(writer: RecordingWriter, keys: list[bytes]) -> None:
    writer.use_key(keys[0])


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
                sys.stderr.write(f"guard: the audit log is kept as it is: {error}\n")
            await asyncio.sleep(RETAIN_SECONDS)


async def _watch_keys(parts: Parts, watches: Sequence[KeyWatch]) -> None:
    """Look at the rings again and again; a ring that cannot be read leaves the keys as they are."""
    while True:
        for one in watches:
            try:
                keys = await asyncio.to_thread(one.look)
                if keys is not None:
                    parts.audit.event(
                        "guard.keys",
                        {"what": one.what, "used": key_id(keys[0]), "accepted": len(keys)},
                    )
                    one.use(keys)
            except GuardError as error:
                parts.metrics.count(ERRORS, OTHER)
                sys.stderr.write(f"guard: {error}; the keys before stay in use\n")
        await asyncio.sleep(KEY_SECONDS)


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
