"""A guard with a provenance policy on a real store."""

from tests.unit.provenance.agents import agent, guard, operator, policy, sections

__all__ = ["agent", "guard", "operator", "policy", "sections"]
