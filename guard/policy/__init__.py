"""Policy files: strict YAML in, one :class:`guard.core.policy.Policy` out."""

from guard.core.errors import PolicyError, PolicyProblem
from guard.policy.compile import load_policies

__all__ = ["PolicyError", "PolicyProblem", "load_policies"]
