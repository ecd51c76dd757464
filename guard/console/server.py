"""The console's process: ``python -m guard.console.server PARENT REDIS_URL DIRECTORY``.

The supervisor of ``guard run --console`` starts it with the settings as one JSON line on standard
input; ``guard console`` serves in its own process, for guards that run elsewhere.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sqlite3
import ssl
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from guard.console.access import LOOPBACK, Access
from guard.console.app import Console
from guard.console.decisions import DecisionIndex
from guard.console.deployment import PolicyInForce
from guard.console.sign_in import SignIn, ways_to_sign_in
from guard.console.webhooks import PendingNotices, Webhooks, load_hooks
from guard.core.errors import GuardError, InputError
from guard.credentials.key_ring import follow_keys, key_watches, load_seal, open_signed_log
from guard.credentials.label_key import label_key_path
from guard.operations.approvals import ApprovalActions
from guard.operations.deployment import Deployment
from guard.operations.incident_actions import Repairs
from guard.operations.policy_drafts import PolicyActions, PolicyDrafts
from guard.processes.child_process import serve_for_supervisor
from guard.processes.notes import ConsoleNote
from guard.runtime.mcp_client.memory_writer import memory_writer
from guard.store.store import RedisSessionStore
from guard.store.trials import TrialStore

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from guard.settings import Settings
    from guard.telemetry.audit_log import AuditLogFile, NoAuditLog


STATE_SECONDS: Final = 5.0
"""Seconds that a question to Redis may take; calls do not wait for it."""
CHECKPOINT_SECONDS: Final = 2.0
RETAIN_SECONDS: Final = 2.0
_WALL: Final = time.time  # noqa: TID251  (the edge where time comes in)


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
    log = settings.audit
    if log is None:
        raise InputError("the console shows the audit log: give --audit")
    check_address(settings)
    listener = _listening(settings)
    place = settings.console.rpartition(":")[0]
    settings = settings.model_copy(update={"console": f"{place}:{listener.getsockname()[1]}"})
    audit = open_signed_log(log, settings.audit_key)
    store = RedisSessionStore.at(redis, timeout=STATE_SECONDS, durability=settings.durability)
    ways = ways_to_sign_in(settings, _WALL)
    drafts = PolicyDrafts(settings.policy, commits=settings.console_commit)
    index = DecisionIndex(log, settings.console_logs)
    seal = load_seal(label_key_path(key), _WALL())

    async def tenants() -> list[str]:
        return await asyncio.to_thread(index.tenants)

    policy = PolicyInForce(settings.policy)
    actions = ApprovalActions(Deployment(store, seal, audit, _WALL, tenants, policy))
    hooks = Webhooks(load_hooks(settings.console_webhooks), audit, actions.metrics, _WALL)
    write = memory_writer(settings.console_memory_secret)
    repairs = Repairs(tuple(settings.console_memory), write, actions.needs_two)
    policies = PolicyActions(drafts, TrialStore(store, seal), audit, _WALL)
    console = Console(
        index,
        actions,
        policies,
        repairs,
        ways,
        {*LOOPBACK, settings.console_address[0], settings.console_host},
    )
    notices = PendingNotices(settings.console_page, _WALL)

    def notify(*pending: Any) -> None:
        for message in notices.of(*pending):
            hooks.tell(message)

    console.notify = notify
    watches = key_watches(label_key_path(key), seal, settings.audit_key, audit, _WALL)
    server = _server(settings, console, ways)
    await _serve_until_stopped(
        server.serve([listener]),
        audit,
        (
            _every(CHECKPOINT_SECONDS, audit.checkpoint, "no checkpoint was signed"),
            follow_keys(watches),
            _every(
                RETAIN_SECONDS,
                lambda: _retain(index, actions.deployment, audit.follow),
                "the log is kept as it is",
            ),
            hooks.run(),
        ),
        store,
        _announce(settings, redis, ways.access),
    )


def _server(settings: Settings, console: Console, ways: SignIn) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            console.app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
            http=ShowsCertificate,
            ssl_certfile=settings.console_certificate,
            ssl_ca_certs=str(ways.holders.authorities) if ways.holders else None,
            ssl_cert_reqs=ssl.CERT_OPTIONAL if ways.holders else ssl.CERT_NONE,
        )
    )


async def _serve_until_stopped(
    serving: Coroutine[Any, Any, None],
    audit: AuditLogFile | NoAuditLog,
    work: Sequence[Coroutine[Any, Any, None]],
    store: RedisSessionStore,
    note: ConsoleNote,
) -> None:
    """Serve until a signal, with work in the background, then close everything."""
    loop = asyncio.get_running_loop()
    background = [loop.create_task(one) for one in work]
    loop.add_signal_handler(signal.SIGHUP, audit.reopen)
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn raises the signal once more after it has stopped; the cleanup must still run.
        loop.add_signal_handler(number, lambda: None)
    try:
        await serving
    finally:
        note.remove()
        for task in background:
            task.cancel()
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


def _announce(settings: Settings, redis: str, access: Access) -> ConsoleNote:
    """Leave the note by which commands of this user find the console, and print the link."""
    # Objects made until now stay: the collector skips them in every batch of decisions.
    gc.freeze()
    file = settings.console_certificate
    certificate = str(file.resolve()) if file else ""
    secret = access.machine_secret()
    note = ConsoleNote(os.getpid(), settings.console_local, secret, certificate, redis)
    note.write()
    link = f"{settings.console_page}/sign-in/{access.link()}"
    sys.stderr.write(f"guard: console at {link} (once, within 15 min)\n")
    sys.stderr.flush()
    return note


def _listening(settings: Settings) -> socket.socket:
    """Return a socket that listens at the console's address; its port may be a free one."""
    host, port = settings.console_address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


async def _every(seconds: float, work: Callable[[], object], what: str) -> None:
    """Do some work again and again in a thread; an error is shown, and the work tried again."""
    while True:
        try:
            await asyncio.to_thread(work)
        except (GuardError, sqlite3.Error) as error:
            sys.stderr.write(f"guard console: {what}: {error}\n")
        await asyncio.sleep(seconds)


def _retain(index: DecisionIndex, deployment: Deployment, follow: Callable[[], None]) -> None:
    """Follow the log where a guard sets it aside, and forget what the policy no longer keeps."""
    follow()
    seconds = deployment.limits.audit
    if seconds:
        index.forget(deployment.now() - seconds)


def main() -> int:
    """Serve for a supervisor; return the exit code."""
    return serve_for_supervisor(
        "console",
        lambda settings, redis, key, _: serve(settings, redis, key),
    )


if __name__ == "__main__":
    sys.exit(main())
