"""The composition root: from settings to a guard that serves.

The only module that imports every part.  :mod:`guard.runtime.serving` runs them in a worker
process; replays and the benchmarks join the same parts without a proxy.
"""

from __future__ import annotations

import hashlib
import secrets
import shlex
import ssl
import time
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

import certifi

from guard.core.errors import GuardError, InputError
from guard.core.metrics import (
    AUDIT_LINES,
    CALLS_AWAITED,
    DETECTION_AGE,
    PREFIX_SCORE_EXPECTED,
    REQUESTS_WAITING,
    SPANS_LOST,
    UNLABELLED_MARKS,
    WORKER_RESTARTS,
    Metrics,
)
from guard.credentials.key_ring import load_ring, load_seal, open_signed_log
from guard.credentials.label_key import label_key_path, recording_key_path
from guard.detectors import DetectorResources, create_detectors
from guard.detectors.prefix_classifier import MODEL as PREFIX_MODEL
from guard.inference.onnx import load_models
from guard.inference.text_classifier import load_classifiers
from guard.memory.write_path import WritePath
from guard.operations.labels import LabelOperator
from guard.pep.login import ServerLogin
from guard.pipeline.admission import Limits
from guard.pipeline.decision_log import Records
from guard.pipeline.declarations import DeclarationHandler
from guard.pipeline.elicitation import Elicitor
from guard.pipeline.guard import Guard
from guard.pipeline.handler_parts import Options, People, Telemetry
from guard.pipeline.handlers import Enforcement
from guard.pipeline.identity import Credentials, Login, Proof
from guard.pipeline.in_flight import StoredExchanges
from guard.pipeline.large_work import OtherProcesses
from guard.pipeline.stores import MemoryMarks, Stores, UnlabelledMarks
from guard.processes.separate_process import CallReader, ResultReader, SeparateProcess
from guard.processes.workers import DetectionFiles
from guard.protocols.base import ProtocolResources, discover_protocols
from guard.runtime.policy_reload import PolicyFiles, PolicyReloader
from guard.settings import EMBEDDED, Settings, child_environment, models_directory
from guard.store.action_trial import trial_end
from guard.store.approval_requests import RedisAnswers
from guard.store.continuity import ContinuityNote, ContinuityReport, ContinuityWatch, DiskMarks
from guard.store.ledger import RedisLedger
from guard.store.memory_stores.recovery import CommandChecker, Owner, Recovery, StoreProbe
from guard.store.shared_texts import RedisSharedTexts
from guard.store.staging import RedisStaging
from guard.store.store import RedisSessionStore
from guard.store.topology import open_client
from guard.telemetry.audit_log import AuditLogFile, NoAuditLog
from guard.telemetry.metrics import PrometheusMetrics
from guard.telemetry.recordings import Limits as RecordingLimits
from guard.telemetry.recordings import RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from guard.core.policy import Policy, StateLimits
    from guard.core.ports import AuditLog, Clock
    from guard.credentials.client_authentication import Tenants
    from guard.processes.child_process import Heartbeat
    from guard.provenance.seal import Seal
    from guard.store.connection import RedisClient
    from guard.telemetry.otel import SpanRecorder


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
    audit = open_signed_log(settings.audit, settings.audit_key)
    if isinstance(audit, AuditLogFile):
        metrics.set(AUDIT_LINES, lambda: audit.size)
    client = client or open_client(
        redis_url, timeout=settings.state_timeout, durability=settings.durability
    )
    store, seal = label_store(settings, client, confdir, policy.limits, audit, metrics, clock.now)
    recorders = _recorders(settings, metrics)
    proofs, tenants = _clients(settings, clock)
    names = () if tenants is None else tenants.names
    path, recovery, probe = memory_parts(
        settings, policy, store.client, seal, audit, metrics, reached, names
    )
    marks = _marks(settings, redis_url, confdir)
    metrics.set(UNLABELLED_MARKS, marks.total)
    guard = Guard(
        policy,
        Stores(store, marks=marks, ledger=RedisLedger(store), memories=probe.again),
        Records(audit, metrics, recorders=recorders, model_digests=digests),
        detectors=create_detectors(DetectorResources(models, load_classifiers())),
        seal=seal,
        memory=path,
        processes=_processes(pulse),
    )
    guard.action_trial_end = _action_trial_end(settings, confdir, audit, clock.now())
    telemetry = Telemetry(audit, metrics, clock)
    enforcement = _enforcement(settings, policy, guard, store, seal, telemetry, proofs, tenants)
    metrics.set(CALLS_AWAITED, enforcement.in_flight.awaited)
    metrics.set(REQUESTS_WAITING, lambda: enforcement.admission.waiting)

    detection = _detection(settings, metrics, clock)
    detection(policy)

    def swap(fresh: Policy) -> None:
        store.set_limits(fresh.limits)
        guard.swap_policy(fresh)
        detection(fresh)

    reloader = PolicyReloader(
        files=files, current=lambda: guard.policy, swap=swap, audit=audit, metrics=metrics
    )
    return Parts(
        guard, enforcement, store, metrics, audit, policy, reloader, recovery, probe, seal,
        recorders,
    )  # fmt: skip


def _enforcement(  # noqa: PLR0913  (it is the composition root)
    settings: Settings,
    policy: Policy,
    guard: Guard,
    store: RedisSessionStore,
    seal: Seal,
    telemetry: Telemetry,
    proofs: Sequence[Proof],
    tenants: Tenants | None,
) -> Enforcement:
    """Join the handlers of messages."""
    audit, metrics, clock = telemetry.audit, telemetry.metrics, telemetry.clock
    login = _login(settings, seal, audit, clock)
    return Enforcement(
        guard=guard,
        protocols=discover_protocols(
            ProtocolResources(
                policy=partial(attrgetter("policy"), guard),
                endpoints={x.key: x.endpoint for x in settings.listeners if x.endpoint},
            )
        ),
        telemetry=telemetry,
        credentials=Credentials(
            proofs,
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


def _processes(pulse: Heartbeat | None) -> OtherProcesses:
    """Return the functions that run in other processes; threads serve without a supervisor."""
    if pulse is None:
        return OtherProcesses()
    results, calls = ResultReader(), CallReader()
    return OtherProcesses(
        read_calls=calls.read,
        read_json=calls.read_json,
        read_result=results.read,
        scan=results.run,
        select=SeparateProcess().run,
        judging=pulse.judging,
    )


def _marks(settings: Settings, redis_url: str, confdir: Path | None) -> UnlabelledMarks:
    """Return where marks of unlabelled results are kept: as long as the store, for all workers.

    Raises:
        GuardError: they cannot be kept there.
    """
    if settings.redis == EMBEDDED and settings.data is None:
        if settings.pulse is None:
            return MemoryMarks()
        path = settings.pulse.with_name("marks")
    else:
        key = label_key_path(settings.label_key, confdir / "label.key" if confdir else None)
        where = settings.data if settings.redis == EMBEDDED else redis_url
        store = hashlib.sha256(str(where).encode()).hexdigest()[:16]
        path = key.with_name(f"{key.name}.{store}-marks")
    try:
        return DiskMarks(path)
    except OSError as error:
        raise GuardError(
            f"marks of results cannot be kept in `{path}`: {error.strerror}"
        ) from error


def _shared_exchanges(
    settings: Settings, guard: Guard, client: RedisClient, seal: Seal, metrics: Metrics
) -> StoredExchanges | None:
    """Return what this worker shares with others; None where there is no other."""
    if settings.workers == 1 and settings.redis == EMBEDDED:
        return None
    texts = RedisSharedTexts(client)
    return StoredExchanges(texts, seal, lambda: guard.policy, metrics, guard.calls.classified)


def _clients(settings: Settings, clock: Clock) -> tuple[Sequence[Proof], Tenants | None]:
    """Return how clients can prove who they are, and their tenants; None where there is one.

    Raises:
        GuardError: the file cannot be used.
    """
    if settings.credentials is None:
        return (), None
    # With its readers of tokens and certificates, which take megabytes.
    from guard.credentials.client_authentication import load_proofs, load_tenants

    return load_proofs(settings.credentials, clock.now), load_tenants(settings.credentials)


def _detection(
    settings: Settings, metrics: PrometheusMetrics, clock: Clock
) -> Callable[[Policy], None]:
    """Return a function that has the supervisor run the detector of a policy, or end it."""
    if settings.pulse is None:
        return lambda _: None
    files = DetectionFiles(settings.pulse.parent)
    metrics.set(DETECTION_AGE, lambda: files.age(clock.now()))

    def ask_for(policy: Policy) -> None:
        files.ask_for(policy.propagation.detection if policy.propagation is not None else None)

    return ask_for


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
            from guard.telemetry.otel import SpanRecorder
        except ImportError as error:
            raise InputError(
                "spans need OpenTelemetry: pip install agent-egress-guard[otel]"
            ) from error
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
    kept, path = _is_kept(settings), label_key_file(settings, confdir)
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


def _action_trial_end(
    settings: Settings, confdir: Path | None, audit: AuditLog, now: float
) -> float:
    """Return until when action rules are judged without effect; it is recorded at the start."""
    if not _is_kept(settings):
        return 0.0
    path = label_key_file(settings, confdir)
    end = trial_end(path, _store_name(settings), now, seconds=settings.action_trial * 86400)
    if end:
        audit.event("guard.action_trial", {"until": end})
    return end


def _is_kept(settings: Settings) -> bool:
    return settings.redis != EMBEDDED or settings.data is not None


def label_key_file(settings: Settings, confdir: Path | None) -> Path:
    """Return the key file of labels."""
    # Labels of an embedded Redis need their key no longer than they live.
    for_this_run = confdir / "label.key" if confdir and not _is_kept(settings) else None
    return label_key_path(settings.label_key, for_this_run)


def _store_name(settings: Settings) -> str:
    """Return what kind of store it is, as the note beside the label key has it."""
    if settings.redis != EMBEDDED:
        return "redis"
    return EMBEDDED if settings.data is None else "data"


def memory_parts(  # noqa: PLR0913  (as the composition root)
    settings: Settings,
    policy: Policy,
    client: RedisClient,
    seal: Seal,
    audit: AuditLog,
    metrics: Metrics,
    reached: Callable[[str], None],
    tenants: Sequence[str] = (),
) -> tuple[WritePath, Recovery, StoreProbe]:
    """Join the parts of the memory gate."""
    # Without a supervisor nobody knows what this worker's predecessor was called.
    owner = settings.owner or f"{secrets.token_hex(8)}:0"
    path = WritePath(
        policy=policy,
        staging=RedisStaging(client, owner=owner, seal=seal),
        audit=audit,
        metrics=metrics,
        checker=CommandChecker(shlex.split(settings.memory_checker), child_environment([]))
        if settings.memory_checker
        else None,
        reached=reached,
    )
    upstreams = {listener.key: listener.upstream for listener in settings.listeners}
    probe = StoreProbe(upstreams, SeparateProcess, settings.upstream_ca)
    recovery = Recovery(
        Owner(client, owner),
        memory=lambda: path.gated,
        holds=path.is_committed,
        ask=probe.ask,
        audit=audit,
        metrics=metrics,
        tenants=tenants,
    )
    return path, recovery, probe
