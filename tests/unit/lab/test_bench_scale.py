"""What the comparison with other proxies measures of a start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from lab import bench_scale
from lab.bench_scale import NO_BYTECODE, STARTS, _starts

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

ENVIRONMENTS: list[Mapping[str, str]] = []


class _Rig:
    """Remembers the environment that its processes would have."""

    def __init__(self, *, environment: Mapping[str, str]) -> None:
        ENVIRONMENTS.append(environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was started."""


def test_a_start_compiles_nothing_that_an_earlier_one_could_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytecode may be written whatever the shell says, and the start that writes it is left out."""
    monkeypatch.setenv(NO_BYTECODE, "1")
    monkeypatch.setattr(bench_scale, "Rig", _Rig)
    monkeypatch.setattr(bench_scale, "_guard", lambda *_: None)
    ENVIRONMENTS.clear()

    assert len(_starts(Path("policy.yaml"), 9, "lean")) == STARTS
    assert len(ENVIRONMENTS) == 1 + STARTS
    assert not any(NO_BYTECODE in one for one in ENVIRONMENTS)
