"""Declarations of servers: definitions are compared with their pins, and every text is labelled.

A tool's description, a server's instructions, its log lines and whatever else it answers reach the
model like results do.  They belong to no call, so they are noted here before they are released; the
session has read them then.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeVar

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.errors import GuardError, MessageError
from guard.core.metrics import ERRORS, Metrics
from guard.core.model import Json, Role
from guard.core.policy import Mode, Policy
from guard.core.work import WorkExceededError
from guard.memory.pins import Pins
from guard.pipeline.large_work import is_large

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from guard.core.declarations import Declaration
    from guard.core.labels import LabelWrite
    from guard.core.mappings import ToolMapping
    from guard.core.ports import Clock, SessionStore
    from guard.pipeline.exchange import Exchange
    from guard.pipeline.guard import Guard
    from guard.provenance.seal import Seal

REMEMBERED: Final = 4096
"""Texts whose labels were stored a short while ago; clients list the same tools again and again."""
REMEMBER_SECONDS: Final = 3600.0
UNCHECKED: Final = "definitions_unchecked"
"""Refusal code of a listing whose pins could not be read."""
ResultT = TypeVar("ResultT")
_PARTS: Final = 3
"""Levels of a declaration whose members are digested one by one: a listing, its tools, theirs."""
WITHHELD: Final = "result_withheld"
"""Refusal code of what a ``result`` rule withholds and no call is there to answer for."""


class DeclarationHandler:
    """Pins and labels what servers declare.

    Args:
        guard: for the policy in force, and for what detectors find.
        store: where pins and labels are kept.
        seal: the deployment's key.
        metrics: for the store's errors.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        guard: Guard,
        store: SessionStore,
        seal: Seal,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._guard = guard
        self._store = store
        self._seal = seal
        self._pins = Pins(seal)
        self._metrics = metrics
        self._clock = clock
        self.offered: Callable[[str, Sequence[str]], Awaitable[None]] | None = None
        """Has the other workers of this guard know which tools a server offers."""
        self._labelled: OrderedDict[bytes, float] = OrderedDict()

    async def note(self, exchange: Exchange, declaration: Declaration) -> None:
        """Compare the definitions of a declaration, and label and look through all of it.

        Raises:
            MessageError: the store cannot be asked, or a rule of the policy withholds it.
        """
        policy = self._guard.policy
        if policy is None:
            return
        try:
            fresh = self._offers(exchange, declaration)
            writes = await self._compared(policy, exchange, declaration)
            digest = await self._apart(declaration, _digest, exchange, declaration)
            now = self._clock.now()
            if self._labelled.get(digest, -REMEMBER_SECONDS) + REMEMBER_SECONDS < now:
                writes += await self._labels(policy, exchange, declaration)
            if writes:
                await self._store.note(exchange.identity, writes)
            if fresh and self.offered is not None:
                await self.offered(exchange.upstream, fresh)
            self._labelled[digest] = now
            self._labelled.move_to_end(digest)
            while len(self._labelled) > REMEMBERED:
                self._labelled.popitem(last=False)
        except (GuardError, ValueError, OSError) as error:
            self._metrics.count(ERRORS, "state")
            if isinstance(error, WorkExceededError) and policy.mode is not Mode.MONITOR:
                raise
            if policy.mode is not Mode.MONITOR:
                raise MessageError(
                    UNCHECKED,
                    "what the server says of its tools cannot be checked now; retry later",
                    status=503,
                ) from error
        source, content = declaration.source, declaration.content
        if not declaration.is_listing and await self.withheld(exchange, [(source, content)]):
            raise MessageError(
                WITHHELD, "a rule of the policy withholds what the server says", status=403
            )

    def _offers(self, exchange: Exchange, declaration: Declaration) -> list[str]:
        """Note which tools a server offers; return the names if other workers must know of them."""
        if not declaration.definitions or not exchange.upstream:
            return []
        names = [definition.name for definition in declaration.definitions]
        return names if self._guard.calls.offers.note(exchange.upstream, names) else []

    async def withheld(
        self, exchange: Exchange, entries: Sequence[tuple[str, Json]]
    ) -> frozenset[int]:
        """Return the positions of the entries that a rule withholds.

        Args:
            exchange: the request that the server answers.
            entries: method and content: entries of listings, or a server's instructions.
        """
        policy = self._guard.policy
        if policy is None or not policy.index.result_rules:
            return frozenset()
        found: set[int] = set()
        for source in {source for source, _ in entries}:
            places = [index for index, (method, _) in enumerate(entries) if method == source]
            # No mapping claims an entry, even if one claims the method's name: a rule about
            # results of unmapped tools concerns the text that a server declares.
            call = self._as_result(exchange, source, None, None).call
            contents = [entries[index][1] for index in places]
            verdicts = await self._guard.results.judge_all(call, contents)
            found.update(i for i, verdict in zip(places, verdicts, strict=True) if verdict)
        return frozenset(found)

    async def _compared(
        self, policy: Policy, exchange: Exchange, declaration: Declaration
    ) -> list[LabelWrite]:
        """Return the pins and marks that a listing brings."""
        if not declaration.definitions or not exchange.upstream:
            return []
        records = await self._store.look_up(
            exchange.identity, self._pins.lookup(exchange.upstream, declaration.definitions)
        )
        server = policy.server(exchange.server, exchange.upstream)
        found = await self._apart(
            declaration,
            self._pins.compare,
            exchange.upstream,
            declaration.definitions,
            records,
            self._clock.now(),
            server.pins if server is not None else None,
        )
        for code, definition in found.findings:
            if definition.name in found.fresh:
                fields = {**_fields(exchange), "tool": definition.name[:128]}
                fields["digest"] = definition.digest
                self._guard.texts.record(code, "definition", fields)
        return found.writes

    async def _apart(
        self, declaration: Declaration, work: Callable[..., ResultT], *arguments: object
    ) -> ResultT:
        """Do some work on a declaration; on a large one in a thread, while others are judged."""
        return await self._guard.threads.run_if(is_large(declaration.content), work, *arguments)

    async def _labels(
        self, policy: Policy, exchange: Exchange, declaration: Declaration
    ) -> list[LabelWrite]:
        """Return the labels of a declaration; look through it."""
        source = "listing" if declaration.is_listing else "request"
        fields = {**_fields(exchange), "method": declaration.source}
        mapping = policy.mapping(declaration.source)
        result = self._as_result(exchange, declaration.source, declaration.content, mapping)
        findings, writes = await self._guard.results.read_declared(
            policy, result, deep=declaration.is_listing
        )
        for finding in findings:
            self._guard.texts.record(finding.code, source, {**fields, "detector": finding.detector})
        return writes

    def _as_result(
        self, exchange: Exchange, source: str, content: Json, mapping: ToolMapping | None
    ) -> ToolResult:
        """Return a declaration as the result of a call that has the method's name."""
        now = self._clock.now()
        classified = ClassifiedCall(exchange.call(source, {}, now), Role.OTHER, mapping)
        return ToolResult(untraced(classified), content, now)


def _fields(exchange: Exchange) -> dict[str, Json]:
    return {
        "server": exchange.server,
        "upstream": exchange.upstream[:256],
        "principal": exchange.identity.principal[:128],
        "session": exchange.identity.session[:128],
    }


def _digest(exchange: Exchange, declaration: Declaration) -> bytes:
    identity = exchange.identity
    where = [identity.tenant, identity.principal, identity.session, exchange.upstream]
    digest = hashlib.blake2b(json.dumps([where, declaration.source]).encode(), digest_size=16)
    _add(digest, declaration.content, _PARTS)
    return digest.digest()


def _add(digest: hashlib.blake2b, value: Json, depth: int) -> None:
    """Add a value to a digest part by part: writing all of it at once cannot be interrupted."""
    if depth and isinstance(value, dict):
        digest.update(b"{%d" % len(value))
        for name in sorted(value):
            digest.update(json.dumps(name).encode())
            _add(digest, value[name], depth - 1)
    elif depth and isinstance(value, list):
        digest.update(b"[%d" % len(value))
        for item in value:
            _add(digest, item, depth - 1)
    else:
        digest.update(json.dumps(value, sort_keys=True).encode())
