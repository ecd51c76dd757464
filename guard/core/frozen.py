"""Immutable values that cost little to make.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a class a dataclass with slots, equality and a hash, whose fields are never assigned.

    The type checker holds that, as for ``dataclass(frozen=True)``.  The run time does not: its
    check makes a value ten times as expensive, and one decision makes some fifty of them.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
