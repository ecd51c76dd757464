"""The console's process: ``python -m guard.console.server PARENT REDIS_URL DIRECTORY``.

The supervisor of ``guard run --console`` starts it with the settings as one JSON line on standard
input; ``guard console`` serves in its own process, for guards that run elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sqlite3
import ssl
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from guard.adapters.audit_log import open_audit_log
from guard.adapters.credentials.key_ring import KeyWatch, audit_signer, load_seal, signer_of
from guard.adapters.credentials.label_key import audit_key_path, label_key_path
from guard.adapters.mcp_client.memory_writer import memory_writer
from guard.adapters.processes.child_process import die_with_parent
from guard.adapters.processes.console_note import ConsoleNote
from guard.adapters.redis.store import RedisSessionStore
from guard.adapters.redis.trials import TrialStore
from guard.console.access import Access
from guard.console.app import Console
from guard.console.decisions import DecisionIndex
from guard.console.incident_api import Repairs
from guard.console.incident_pages import IncidentPages
from guard.console.lineage_pages import LineagePages
from guard.console.memory_pages import MemoryPages
from guard.console.oidc import OpenIdConnect
from guard.console.operator_actions import OperatorActions
from guard.console.pages import PageSources
from guard.console.people import load_people
from guard.console.policy_drafts import PolicyDrafts
from guard.console.policy_pages import PolicyPages
from guard.console.session_pages import SessionPages
from guard.console.sign_in import CALLBACK
from guard.console.trial_pages import TrialPages
from guard.console.webhooks import PendingNotices, Webhooks, load_hooks
from guard.core.errors import GuardError, InputError
from guard.policy_files import load_policies
from guard.settings import EMBEDDED, Settings, policy_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.adapters.audit_log import AuditLogFile, NoAuditLog
    from guard.console.operator_actions import PrincipalStatuses
    from guard.console.pages import Templates
    from guard.console.routes import PagesOf
    from guard.core.policy import Policy
    from guard.provenance.approvals import ApprovalRequest
    from guard.provenance.seal import Seal

STATE_SECONDS: Final = 5.0
"""How long a question to Redis may take; nobody's call waits for it."""
CHECKPOINT_SECONDS: Final = 2.0
KEY_SECONDS: Final = 1.0
RETAIN_SECONDS: Final = 2.0
NICE: Final = 15
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class PolicyInForce:
    """The policy that a guard has read from the same files, read anew when they change.

    Args:
        files: of the policy; empty where this console was given none.
    """

    def __init__(self, files: list[Path]) -> None:
        self._files = [policy_file(path) for path in files]
        self._looks: tuple[tuple[int, int], ...] = ()
        self._policy: Policy | None = None

    def __call__(self) -> Policy | None:
        """Return it, None where no files were given.

        Raises:
            GuardError: the files cannot be read, or are no policy.
        """
        try:
            found = [path.stat() for path in self._files]
        except OSError as error:
            raise GuardError(f"a policy file cannot be read: {error.strerror}") from error
        looks = tuple((one.st_mtime_ns, one.st_size) for one in found)
        if looks != self._looks:
            self._policy = load_policies(self._files)
            self._looks = looks
        return self._policy


class ConsoleAddress:
    """Where people reach the console.

    Args:
        settings: of the console.
        redis: URL of its state.
    """

    def __init__(self, settings: Settings, redis: str) -> None:
        self._settings, self._redis = settings, redis
        self.port = settings.console_address[1]
        """The port listened on; set once it is known."""
        self._note: Path | None = None

    def leave_note(self, secret: str) -> None:
        """Tell commands of the same user where it is; :meth:`forget` takes that back."""
        file = self._settings.console_certificate
        certificate = str(file.resolve()) if file else ""
        self._note = ConsoleNote(os.getpid(), self.local, secret, certificate, self._redis).write()

    def forget(self) -> None:
        """Take the note away."""
        if self._note is not None:
            self._note.unlink(missing_ok=True)

    @property
    def local(self) -> str:
        """Its address on this machine."""
        scheme = "http" if self._settings.console_certificate is None else "https"
        return f"{scheme}://{self._settings.console_address[0]}:{self.port}"

    @property
    def url(self) -> str:
        """The URL for people, without a slash at its end."""
        return self._settings.console_url.rstrip("/") or self.local


class ShowsCertificate(HttpToolsProtocol):
    """HTTP/1.1 as uvicorn speaks it; a request carries the certificate of its connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note the certificate that the handshake has verified, in DER."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        shown = tls.getpeercert(binary_form=True) if tls is not None else None
        self.app_state = {**self.app_state, "certificate": shown or b""}


async def serve(settings: Settings, redis: str, key: Path | None) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        settings: ``console`` and ``audit`` are given.
        redis: URL of the state.
        key: file of the label key; left out, the user's own.

    Raises:
        GuardError: a part cannot be used; nothing was served.
    """
    if settings.audit is None:
        raise InputError("the console shows the audit log: give --audit")
    host, port = settings.console_address
    check_address(settings)
    audit = open_audit_log(settings.audit, signer=audit_signer(settings.audit_key))
    store = RedisSessionStore.at(redis, timeout=STATE_SECONDS, durability=settings.durability)
    wall = time.time  # noqa: TID251  (the edge where time comes in)
    people = load_people(settings.console_people, wall)
    access = Access(people.secrets, time.monotonic)
    address = ConsoleAddress(settings, redis)
    oidc = None
    if people.oidc is not None:
        oidc = OpenIdConnect(
            people.oidc,
            people.oidc_secret,
            lambda: address.url + CALLBACK,
            time.monotonic,
            wall,
        )
    secure = settings.console_certificate is not None or settings.console_url.startswith("https:")
    drafts = PolicyDrafts(
        settings.policy,
        settings.record,
        settings.record_key,
        commits=settings.console_commit,
        kept=settings.audit.with_name(settings.audit.name + ".drafts"),
    )
    index = DecisionIndex(settings.audit, settings.console_logs)
    seal = load_seal(label_key_path(key), wall())
    actions = OperatorActions(store, seal, audit, PolicyInForce(settings.policy))
    write = memory_writer(settings.console_memory_secret)
    hooks = Webhooks(load_hooks(settings.console_webhooks), audit, actions.metrics, wall)
    notices = PendingNotices(lambda: address.url, wall)

    def tell(groups: list[list[ApprovalRequest]], standing: PrincipalStatuses) -> None:
        for message in notices.of(groups, standing) if address.port else ():
            hooks.tell(message)

    console = Console(
        index,
        actions,
        access,
        hosts={*LOOPBACK, host, settings.console_host},
        parts=partial(
            further_pages,
            (drafts, Repairs(tuple(settings.console_memory), write, actions.needs_two)),
            (store, seal),
            (index, actions),
            audit,
            wall,
        ),
        secure=secure,
        oidc=oidc,
        holders=people.holders,
        notify=tell,
    )
    server = uvicorn.Server(
        uvicorn.Config(
            console.app,
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
            http=ShowsCertificate,
            ssl_certfile=settings.console_certificate,
            ssl_ca_certs=str(people.holders.authorities) if people.holders else None,
            ssl_cert_reqs=ssl.CERT_OPTIONAL if people.holders else ssl.CERT_NONE,
        )
    )
    watches = [
        KeyWatch(label_key_path(key), "label key", seal.rotate, wall),
        KeyWatch(
            settings.audit_key or audit_key_path(),
            "audit key",
            lambda keys: audit.use_signer(signer_of(keys)),
            wall,
        ),
    ]
    loop = asyncio.get_running_loop()
    background = [
        loop.create_task(_announce(server, access, address)),
        loop.create_task(_checkpoints(audit.checkpoint)),
        loop.create_task(_watch_keys(watches)),
        loop.create_task(_retain(index, actions, audit.follow)),
        loop.create_task(hooks.run()),
    ]
    loop.add_signal_handler(signal.SIGHUP, audit.reopen)
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn raises what has stopped it once more: what follows is still to be done.
        loop.add_signal_handler(number, lambda: None)
    try:
        await server.serve()
    finally:
        address.forget()
        for task in background:
            task.cancel()
        await drafts.aclose()
        await store.aclose()
        audit.close()


def check_address(settings: Settings) -> None:
    """Refuse to be reached in clear from other machines.

    Raises:
        InputError: the address is not this machine's own, and nothing says how TLS comes to it.
    """
    host, _ = settings.console_address
    if host in LOOPBACK or settings.console_certificate is not None:
        return
    if not settings.console_url.startswith("https://"):
        msg = f"`{host}` is reached from other machines: give --console-certificate (PEM with key)"
        raise InputError(f"{msg}, or --console-url https://… of what ends TLS before it")


def further_pages(
    works: tuple[PolicyDrafts, Repairs],
    state: tuple[RedisSessionStore, Seal],
    shown: tuple[DecisionIndex, OperatorActions],
    audit: AuditLogFile | NoAuditLog,
    now: Callable[[], float],
    templates: Templates,
) -> tuple[PagesOf, ...]:
    """Return the pages beside those of :class:`Console` itself.

    Args:
        works: the policies' drafts, and how repairs of memories are written.
        state: the store and the deployment's seal.
        shown: the index over the audit log, and what people do.
        audit: takes a line per act.
        now: seconds since the epoch.
        templates: of the pages.
    """
    (drafts, repairs), (store, seal), (index, actions) = works, state, shown
    sources = PageSources(store, seal, index, templates, now, lambda: actions.limits)
    return (
        PolicyPages(drafts, templates, audit, now),
        TrialPages(
            drafts=drafts,
            store=TrialStore(store, seal),
            index=index,
            templates=templates,
            audit=audit,
            now=now,
        ),
        SessionPages(sources),
        LineagePages(sources),
        IncidentPages(sources, audit, repairs),
        MemoryPages(sources, audit),
    )


async def _announce(server: uvicorn.Server, access: Access, address: ConsoleAddress) -> None:
    # What is there by now stays: it is not looked through again with every batch of decisions.
    gc.freeze()
    while not server.started:  # noqa: ASYNC110  (uvicorn has no event for it)
        await asyncio.sleep(0.02)
    address.port = server.servers[0].sockets[0].getsockname()[1]
    address.leave_note(access.machine_secret())
    link = f"{address.url}/sign-in/{access.link()}"
    sys.stderr.write(f"guard: console at {link} (once, within 15 min)\n")
    sys.stderr.flush()


async def _watch_keys(watches: list[KeyWatch]) -> None:
    while True:
        for one in watches:
            try:
                keys = await asyncio.to_thread(one.look)
                if keys is not None:
                    one.use(keys)
            except GuardError as error:
                sys.stderr.write(f"guard console: {error}; the keys before stay in use\n")
        await asyncio.sleep(KEY_SECONDS)


async def _retain(
    index: DecisionIndex, actions: OperatorActions, follow: Callable[[], None]
) -> None:
    """Follow the log where a guard sets it aside, and forget what the policy no longer keeps."""
    while True:
        try:
            follow()
            keep = actions.kept()
            if keep:
                await asyncio.to_thread(index.forget, keep)
        except (GuardError, sqlite3.Error) as error:
            sys.stderr.write(f"guard console: the log is kept as it is: {error}\n")
        await asyncio.sleep(RETAIN_SECONDS)


async def _checkpoints(sign: Callable[[], str | None]) -> None:
    while True:
        await asyncio.sleep(CHECKPOINT_SECONDS)
        await asyncio.to_thread(sign)


def main() -> int:
    """Serve for a supervisor; return the exit code."""
    parent, redis, directory = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    settings = Settings.model_validate_json(sys.stdin.readline())
    key = settings.label_key
    if key is None and settings.redis == EMBEDDED and (directory / "label.key").exists():
        key = directory / "label.key"
    try:
        die_with_parent(parent)
        # Calls come first where processors are few.
        os.nice(NICE)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(settings, redis, key))
    except (GuardError, OSError) as error:
        sys.stderr.write(f"guard console: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
