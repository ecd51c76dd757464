"""What servers say besides results: definitions meet their pins, and all of it is labelled.

A tool's description, a server's instructions and the text it wants a model to go on from reach the
model like results do.  They belong to no call, so they are told here, before they are released.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.errors import GuardError, MessageError
from guard.core.model import Role, ToolCall
from guard.core.verdict import Mode
from guard.decision.decision_ids import new_decision_id

if TYPE_CHECKING:
    from guard.core.declarations import Declaration
    from guard.core.labels import LabelWrite
    from guard.core.model import Identity, Json
    from guard.core.policy import Policy
    from guard.core.ports import Clock, Metrics, SessionStore
    from guard.decision.guard import Guard
    from guard.decision.information_point import InformationPoint
    from guard.enforcement.model_answers import Origin

REMEMBERED: Final = 4096
"""Texts whose labels were stored a short while ago; clients list the same tools again and again."""
REMEMBER_SECONDS: Final = 3600.0
UNCHECKED: Final = "definitions_unchecked"
"""Refusal code of a listing whose pins could not be read."""
WITHHELD: Final = "result_withheld"
"""Refusal code of what a ``result`` rule withholds and no call is there to answer for."""


class DeclarationHandler:
    """Notes what servers tell.

    Args:
        guard: for the policy in force, and for what detectors find.
        store: where pins and labels are kept.
        information: reads and writes pins and labels.
        metrics: for the store's errors.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        guard: Guard,
        store: SessionStore,
        information: InformationPoint,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._guard = guard
        self._store = store
        self._information = information
        self._metrics = metrics
        self._clock = clock
        self._labelled: OrderedDict[bytes, float] = OrderedDict()

    async def note(self, origin: Origin, upstream: str, told: Declaration) -> None:
        """Compare the definitions in what was told, and label and look through all of it.

        Raises:
            MessageError: the store cannot be asked, or a rule of the policy withholds it.
        """
        policy = self._guard.policy
        if policy is None:
            return
        try:
            writes = await self._compared(origin, upstream, told)
            digest = _digest(origin.identity, upstream, told)
            now = self._clock.now()
            if self._labelled.get(digest, -REMEMBER_SECONDS) + REMEMBER_SECONDS < now:
                writes += self._labels(policy, origin, upstream, told)
            if writes:
                await self._store.note(origin.identity, writes)
            self._labelled[digest] = now
            self._labelled.move_to_end(digest)
            while len(self._labelled) > REMEMBERED:
                self._labelled.popitem(last=False)
        except (GuardError, ValueError, OSError) as error:
            self._metrics.error("state")
            if policy.mode is not Mode.MONITOR:
                message = "what the server says of its tools cannot be checked now; retry later"
                raise MessageError(UNCHECKED, message, status=503) from error
        if told.is_read and self.withholds(origin, told.source, told.content):
            message = "a rule of the policy withholds what the server says"
            raise MessageError(WITHHELD, message, status=403)

    def withholds(self, origin: Origin, source: str, entry: Json) -> bool:
        """Return whether a rule withholds an entry of a listing, or a server's instructions."""
        policy = self._guard.policy
        if policy is None or not policy.result_rules:
            return False
        result = self._as_result(origin, source, entry)
        return self._guard.judge_result(result) is not None

    async def _compared(self, origin: Origin, upstream: str, told: Declaration) -> list[LabelWrite]:
        """Return the pins and marks that a listing brings."""
        if not told.definitions or not upstream:
            return []
        pins = self._information.pins
        records = await self._store.look_up(
            origin.identity, pins.lookup(upstream, told.definitions)
        )
        found = pins.compare(upstream, told.definitions, records, self._clock.now())
        for code, definition in found.findings:
            if definition.name in found.fresh:
                fields = {**_fields(origin, upstream), "tool": definition.name[:128]}
                fields["digest"] = definition.digest
                self._guard.texts.record(code, "definition", fields)
        return found.writes

    def _labels(
        self, policy: Policy, origin: Origin, upstream: str, told: Declaration
    ) -> list[LabelWrite]:
        """Return the labels of what was told; look through it."""
        source = "request" if told.is_read else "listing"
        fields = {**_fields(origin, upstream), "method": told.source}
        for finding in self._guard.texts.find(told.content, deep=not told.is_read):
            self._guard.texts.record(finding.code, source, {**fields, "detector": finding.detector})
        result = self._as_result(origin, told.source, told.content)
        return list(self._information.told(policy, result, is_read=told.is_read))

    def _as_result(self, origin: Origin, source: str, content: Json) -> ToolResult:
        """Return what a server says as the result of a call that has the method's name."""
        now, policy = self._clock.now(), self._guard.policy
        mapping = policy.mapping(source) if policy is not None else None
        call = ToolCall(
            id=new_decision_id(),
            identity=origin.identity,
            tool=source,
            arguments={},
            protocol=origin.protocol,
            at=now,
            server=origin.server,
        )
        return ToolResult(untraced(ClassifiedCall(call, Role.OTHER, mapping)), content, now)


def _fields(origin: Origin, upstream: str) -> dict[str, Json]:
    return {
        "server": origin.server,
        "upstream": upstream[:256],
        "principal": origin.identity.principal[:128],
        "session": origin.identity.session[:128],
    }


def _digest(identity: Identity, upstream: str, told: Declaration) -> bytes:
    who = [identity.tenant, identity.principal, identity.session if told.is_read else "", upstream]
    text = json.dumps([who, told.source, told.content], sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
