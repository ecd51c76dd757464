"""Enforcement points of one worker: of its listeners, of mitmproxy and of wrapped servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.core.errors import InputError
from guard.core.policy import EgressLimits
from guard.credentials.write_credentials import WriteCredential, load_write_credentials
from guard.pep.stdio.decision_socket import DecisionServer
from guard.processes.listening_ports import DECISIONS, Sockets
from guard.settings import UNIX, Settings, read_secret

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cryptography.x509 import Certificate

    from guard.pep.lean.pep import LeanPep
    from guard.pep.mitm.master import MitmPep
    from guard.runtime.wiring import Parts


def listeners_of(
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


def decision_server(parts: Parts, settings: Settings, sockets: Sockets) -> DecisionServer | None:
    """Return the server of wrappers' and hooks' questions, None where no socket is named."""
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


def _client_authorities(parts: Parts) -> list[Certificate]:
    """Return the authorities of clients' certificates; none where clients are not asked for any."""
    proofs = parts.enforcement.credentials.proofs
    if not proofs:
        return []
    from guard.credentials.client_authentication import client_authorities

    return client_authorities(proofs)
