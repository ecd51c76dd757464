"""Detectors: evidence producers, one file each, found by discovery.

A detector gives findings and never decides.  To add one, put one module into this package with
one concrete :class:`DetectorPlugin` in it; nothing else has to change.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, ClassVar, Self

from guard.core.discovery import classes_of
from guard.core.errors import GuardError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.calls import ClassifiedCall
    from guard.core.model import Finding
    from guard.core.ports import Detector, ModelRunner
    from guard.core.trajectory import Snapshot


@dataclass(frozen=True, slots=True)
class DetectorResources:
    """Resources that a detector is built from."""

    models: Mapping[str, ModelRunner] = field(default_factory=dict)
    """Verified models by name."""
    classifiers: tuple[Detector, ...] = ()
    """Text classifiers that the operator added."""


class DetectorPlugin(ABC):
    """Base of every detector; satisfies :class:`guard.core.ports.Detector`."""

    name: ClassVar[str]
    """Unique among the detectors; it appears in findings, errors and audit lines."""
    reads_calls: ClassVar[bool] = True
    """False for one that looks only at what comes in."""
    reads_arguments: ClassVar[bool] = False
    """True for one that looks through the arguments of a call and at nothing else, which takes
    long where they are large: it must be picklable, as another process asks it then."""

    codes: ClassVar[frozenset[str]]
    """The codes of its findings: values that labels of metrics may take."""
    facts: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Meaning of each fact in its findings, by name.  Expressions read it as ``facts.NAME``,
    described calls state it, explanations and audit lines show it; nothing else has to change."""

    @classmethod
    @abstractmethod
    def create(cls, resources: DetectorResources) -> Self:
        """Return the detector, ready to be asked.

        Raises:
            GuardError: something it needs is missing; the guard must not start without it.
        """

    @abstractmethod
    def inspect(self, call: ClassifiedCall, snapshot: Snapshot) -> Sequence[Finding]:
        """Return the evidence found.  May raise: an error blocks the call."""


def discover_detectors() -> tuple[type[DetectorPlugin], ...]:
    """Return the detector of every module in this package, by name.

    Raises:
        GuardError: a module cannot be imported or does not define exactly one detector, or two
            detectors share a name.  A detector that silently went missing would be a hole.
    """
    found: dict[str, type[DetectorPlugin]] = {}
    for info in pkgutil.iter_modules(__path__):
        full_name = f"{__name__}.{info.name}"
        try:
            module = importlib.import_module(full_name)
        except Exception as error:
            raise GuardError(
                f"detector module `{full_name}` cannot be imported ({type(error).__name__})"
            ) from error
        detector = _only_detector(module)
        if detector.name in found:
            raise GuardError(f"two detectors are called `{detector.name}`, rename one")
        found[detector.name] = detector
    return tuple(found[name] for name in sorted(found))


def create_detectors(resources: DetectorResources) -> tuple[Detector, ...]:
    """Return every discovered detector, built from the resources, and every added classifier.

    Raises:
        GuardError: as :func:`discover_detectors` and :meth:`DetectorPlugin.create`.
    """
    own = (detector.create(resources) for detector in discover_detectors())
    return (*own, *resources.classifiers)


def declared_facts() -> dict[str, str]:
    """Return the name of the detector that declares each fact.

    Raises:
        GuardError: as :func:`discover_detectors`, or two declare one name.
    """
    found: dict[str, str] = {}
    for detector in discover_detectors():
        for fact in detector.facts:
            if fact in found:
                raise GuardError(
                    f"detectors `{found[fact]}` and `{detector.name}` both declare `{fact}`"
                )
            found[fact] = detector.name
    return found


def _only_detector(module: ModuleType) -> type[DetectorPlugin]:
    classes = list(classes_of(module, DetectorPlugin))
    if len(classes) != 1 or not all(hasattr(classes[0], part) for part in ("name", "codes")):
        raise GuardError(
            f"module `{module.__name__}` must define exactly one detector with a name and codes"
        )
    return classes[0]
