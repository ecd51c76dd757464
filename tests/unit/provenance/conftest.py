"""A guard with a provenance policy on a real store."""

from tests.unit.provenance.agents import agent, guard, policy, sections

__all__ = ["agent", "guard", "policy", "sections"]
