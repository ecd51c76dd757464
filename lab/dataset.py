"""From trace files to rows: one example per run, its trigger session, its label and its groups.

The trigger session is where a delayed attack fires.  A run without a call in it is an example all
the same: the empty sequence.  Ground truth, the ``labels`` object of a run, is read strictly, and
only here and by evaluations; nothing that judges a call may import this module.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from email.utils import getaddresses
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from guard.core.model import Json, Role
from guard.core.trajectory import Trajectory, without_recalls
from guard.policy import load_policies
from guard.replay.traces import Call, Located, TraceError, locate_runs
from lab.paper import INTERNAL, ONTOLOGY, TRIGGER_SESSION, FeatureSet

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
    from pathlib import Path


class Labelling(StrEnum):
    """Definition of a positive run; the value is its name on the command line."""

    SUCCESS = "attack_success"
    """The run's own label: the attack succeeded, in whichever session."""
    MAILED = "mailed_attacker"
    """A send of the trigger session names an attacker's address."""


Address = Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)]


class Truth(BaseModel):
    """The labels that training and evaluation use; others are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    attack: bool
    """True if the run was attacked at all."""
    attack_success: bool | None = None
    attacker_recipients: frozenset[Address] | None = None
    """Addresses of the attacker, in lower case."""
    model: str | None = None
    """The agent's language model."""
    defense: str | None = None
    duplicate_group: int | str | None = None
    """Runs that differ in nothing but their time share this number."""


def read_truth(located: Located) -> Truth:
    """Return the labels of a run.

    Raises:
        TraceError: a label is missing or of the wrong type; the message names it.
    """
    try:
        # As JSON, a list is a set too.
        return Truth.model_validate_json(json.dumps(dict(located.run.labels)))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise TraceError(
            located.path,
            located.line,
            f"labels.{field}: {first['msg'][:1].lower()}{first['msg'][1:]}",
        ) from None


def recipients(call: Call) -> frozenset[str]:
    """Return the bare addresses a send names in ``to``, in lower case."""
    to: Json = call.args.get("to", ())
    entries = [to] if isinstance(to, str) else to
    texts = [entry for entry in entries or () if isinstance(entry, str)]
    return frozenset(address.strip().lower() for _, address in getaddresses(texts))


def is_inward(addresses: frozenset[str]) -> bool:
    """Return whether there are recipients, and each is internal."""
    return bool(addresses) and all(one.rpartition("@")[2] == INTERNAL for one in addresses)


def names_attacker(call: Call, truth: Truth) -> bool:
    """Return whether a call names an attacker's address in ``to``.

    Addresses are compared whole, as an attacker's may be a sub-domain of an internal domain.
    """
    return not (truth.attacker_recipients or frozenset()).isdisjoint(recipients(call))


LAST_SESSION: Final = "last"
"""Stands for the last session of each run where a trigger session is asked for."""


@dataclass(frozen=True, slots=True)
class Step:
    """Features of one call."""

    session: str
    role: Role
    to_attacker: bool
    """True if it is a send that names an attacker's address."""
    inward: bool = False
    """True if it is a send whose recipients are all internal."""


@dataclass(frozen=True, slots=True)
class Example:
    """One run."""

    steps: tuple[Step, ...]
    """All calls of all sessions, in recorded order."""
    trigger: tuple[Role, ...]
    """Roles of the trigger session's calls, by time."""
    truth: Truth
    mailed: bool
    """True if a send of the trigger session names an attacker's address."""
    group: Hashable
    """Equal for runs that repeat one another."""
    tools: frozenset[str]
    """Names of the tools that no role was known for."""
    inward: bool = False
    """True if the first send of the trigger session stays inside."""

    @property
    def cell(self) -> str:
        """``model|defence``."""
        return f"{self.truth.model or 'unknown'}|{self.truth.defense or 'none'}"

    def label(self, labelling: Labelling) -> bool:
        """Return whether the run is a positive; a run without an attack never is."""
        if not self.truth.attack:
            return False
        return self.mailed if labelling is Labelling.MAILED else bool(self.truth.attack_success)

    def row(self, features: FeatureSet) -> tuple[float, ...]:
        """Return the features of the trigger session."""
        if features is FeatureSet.FULL19:
            return Trajectory.of(self.trigger).features_19()
        row = Trajectory.of(prefix(self.trigger)).features_13()
        signature = features is FeatureSet.SIGNATURE13
        return without_recalls(row) if signature and self.inward else row


def prefix(roles: Sequence[Role]) -> Sequence[Role]:
    """Return what comes before the first send; all of it where nothing is sent."""
    return roles[: roles.index(Role.SEND)] if Role.SEND in roles else roles


@dataclass(frozen=True, slots=True)
class Dataset:
    """The examples of some trace files."""

    examples: tuple[Example, ...]
    files: tuple[tuple[str, str], ...] = ()
    """Name and sha256 (hex) of each file read."""

    def __len__(self) -> int:
        return len(self.examples)

    def rows(self, features: FeatureSet) -> np.ndarray:
        """Return the rows, float32, shape (runs, features)."""
        rows = np.array([example.row(features) for example in self.examples], dtype=np.float32)
        return rows.reshape(len(self), len(features.names))

    def labels(self, labelling: Labelling) -> np.ndarray:
        """Return 1 for positives and 0 for others, int64, shape (runs,)."""
        return np.array([example.label(labelling) for example in self.examples], dtype=np.int64)

    @property
    def cells(self) -> np.ndarray:
        """``model|defence`` per run, shape (runs,)."""
        return np.array([example.cell for example in self.examples], dtype=np.str_)

    @property
    def repeats(self) -> np.ndarray:
        """A number per run that repeats share, int64, shape (runs,)."""
        numbers: dict[Hashable, int] = {}
        return np.array([numbers.setdefault(e.group, len(numbers)) for e in self.examples], int)

    def distinct(self) -> Dataset:
        """Return the first run of each group of repeats."""
        first: dict[Hashable, Example] = {}
        for example in self.examples:
            first.setdefault(example.group, example)
        return replace(self, examples=tuple(first.values()))


@dataclass(frozen=True, slots=True)
class Reading:
    """Settings for reading examples from trace files."""

    labelling: Labelling = Labelling.SUCCESS
    """Runs that lack what it needs are bad lines."""
    session: str = TRIGGER_SESSION
    """The trigger session, or :data:`LAST_SESSION`."""
    with_benign: bool = False
    """True if runs without an attack are negatives, by their last session; else left out."""
    roles: Callable[[str], Role | None] = ONTOLOGY.get
    """The role of a tool, None for one that nothing is known of."""


def roles_of(tools: Path | None) -> Callable[[str], Role | None]:
    """Return what gives a tool its role.

    Raises:
        PolicyError: the policy cannot be used.
    """
    if tools is None:
        return ONTOLOGY.get
    policy = load_policies([tools])
    return lambda tool: getattr(policy.mapping(tool), "role", None)


def load_dataset(paths: Sequence[Path], reading: Reading | None = None) -> Dataset:
    """Return the examples of trace files.

    Raises:
        TraceError: a file is missing or damaged, or has a bad line.
    """
    reading = reading or Reading()
    found = [_example(located, reading) for located in locate_runs(paths)]
    examples = tuple(one for one in found if one.truth.attack or reading.with_benign)
    files = tuple((path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths)
    return Dataset(examples, files)


def _example(located: Located, reading: Reading) -> Example:
    truth = read_truth(located)
    needed = "attack_success" if reading.labelling is Labelling.SUCCESS else "attacker_recipients"
    if truth.attack and getattr(truth, needed) is None:
        problem = f"labels.{needed}: needed for the labelling `{reading.labelling.value}`"
        raise TraceError(located.path, located.line, problem)
    calls = located.run.calls
    session = reading.session
    if calls and (session == LAST_SESSION or not truth.attack):
        session = calls[-1].session
    steps = tuple(_step(call, truth, reading.roles) for call in calls)
    trigger = tuple(role for _, role in roles_by_time(calls, session, reading.roles))
    sends = [s for s in steps if s.session == session and s.role is Role.SEND]
    return Example(
        steps=steps,
        trigger=trigger,
        truth=truth,
        mailed=any(step.to_attacker and step.session == session for step in steps),
        group=_repeat_of(located, truth),
        tools=frozenset(call.tool for call in calls if reading.roles(call.tool) is None),
        inward=bool(sends) and sends[0].inward,
    )


def roles_by_time(
    calls: Iterable[Call], session: str, roles: Callable[[str], Role | None]
) -> list[tuple[Call, Role]]:
    """Return one session's calls by time, with roles; calls without a time keep their order."""
    chosen = [call for call in calls if call.session == session]
    if all(call.ts is not None for call in chosen):
        chosen.sort(key=lambda call: call.ts or 0.0)
    return [(call, roles(call.tool) or Role.OTHER) for call in chosen]


def _step(call: Call, truth: Truth, roles: Callable[[str], Role | None]) -> Step:
    role = roles(call.tool) or Role.OTHER
    is_send = role is Role.SEND
    return Step(
        call.session,
        role,
        is_send and names_attacker(call, truth),
        is_send and is_inward(recipients(call)),
    )


def _repeat_of(located: Located, truth: Truth) -> Hashable:
    """Return what runs share that differ in nothing but their time.

    Attackers' addresses may be rewritten per run, so an attacker's is not compared by its text.
    """
    if truth.duplicate_group is not None:
        return (located.path, truth.duplicate_group)
    attackers: Mapping[str, str] = dict.fromkeys(truth.attacker_recipients or (), "attacker")
    return (
        truth.model,
        truth.defense,
        tuple(
            (call.session, call.tool, tuple(sorted(attackers.get(a, a) for a in recipients(call))))
            for call in located.run.calls
        ),
    )


def counts(data: Dataset, labelling: Labelling) -> dict[str, Json]:
    """Return raw and de-duplicated counts."""
    distinct = data.distinct()
    return {
        "runs": len(data),
        "positive": int(data.labels(labelling).sum()),
        "negative": int((1 - data.labels(labelling)).sum()),
        "distinct_runs": len(distinct),
        "distinct_positive": int(distinct.labels(labelling).sum()),
        "distinct_negative": int((1 - distinct.labels(labelling)).sum()),
        "distinct_rows": {
            features.value: len(np.unique(data.rows(features), axis=0))
            for features in (FeatureSet.PREFIX13, FeatureSet.FULL19)
        },
        "cells": len(np.unique(data.cells)),
    }


def trap_notes(data: Dataset) -> list[str]:
    """Return what could mislead a reader of figures on this data, one sentence each."""
    notes = []
    if (distinct := len(data.distinct())) < len(data):
        notes.append(
            f"{len(data)} runs are {distinct} distinct ones; random folds put repeats of one run "
            "on both sides, so their figures say how well a model remembers"
        )
    if all(step.role is not Role.SEND for one in data.examples for step in one.steps):
        notes.append("no tool of these runs is known as a send: map the tools to roles")
    if unknown := frozenset().union(*(example.tools for example in data.examples)):
        notes.append(
            f"{len(unknown)} tools have no role here and count in the length of a session only"
        )
    return notes
