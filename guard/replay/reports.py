"""Reports of ``guard lab bench``, ``guard lab eval`` and ``guard demo``; JSON with ``--json``."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Check(BaseModel):
    """One figure.  Rates are fractions from 0 to 1; a count has ``n`` beside it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    value: int | Finite | None
    """None where it could not be measured; then ``reason`` says why."""
    unit: str
    n: int | None = None
    """Number of observations behind the figure."""
    interval: tuple[Finite, Finite] | None = None
    """Range of the figure with 95 % confidence, unless the details say otherwise."""
    target: str | None = None
    """Target of the figure, as written in the plan, e.g. ``>= 1``."""
    reason: str | None = None

    @model_validator(mode="after")
    def _null_needs_a_reason(self) -> Check:
        if self.value is None and not self.reason:
            raise ValueError(
                f"check `{self.id}` has no value: say in `reason` why it was not measured"
            )
        return self

    @model_serializer(mode="wrap")
    def _leave_out_what_is_not_there(
        self, serialise: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        data: dict[str, Any] = serialise(self)
        return {key: value for key, value in data.items() if value is not None or key == "value"}


class Report(BaseModel):
    """Figures of one run, and the machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    machine: dict[str, Any]
    checks: list[Check]
    details: dict[str, Any] = Field(default_factory=dict)

    def to_json(self) -> str:
        """Return the report as one line of JSON."""
        return self.model_dump_json()


def machine() -> dict[str, Any]:
    """Return what a figure's reader must know of the machine it was measured on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "release": platform.release(),
        "architecture": platform.machine(),
        "cpu": _cpu_model(),
        "cpus": len(affinity(0)) if affinity is not None else os.cpu_count(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor()  # Which starts a program.
