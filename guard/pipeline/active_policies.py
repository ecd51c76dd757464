"""The policy in force, and the candidate that a trial compares with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.model import Identity
    from guard.core.policy import Policy
    from guard.pipeline.trial import Trial


class ActivePolicies:
    """Policies that decide in one process.

    Args:
        policy: the policy in force; None blocks every call.
    """

    def __init__(self, policy: Policy | None) -> None:
        self.policy = policy
        """The policy in force; only :meth:`swap_policy` replaces it."""
        self.trial: Trial | None = None
        """A candidate beside it; only :meth:`try_policy` replaces it."""
        self.action_trial_end = 0.0
        """Time until which action rules are judged without effect, in seconds since the epoch."""
        self._bare: tuple[Policy, Policy] | None = None
        self._listeners: list[Callable[[], None]] = []

    def swap_policy(self, policy: Policy) -> None:
        """Put another validated policy in force for every call judged from now on.

        A trial ends: its candidate was compared with the previous policy.
        """
        self.policy = policy
        self.trial = None
        self._notify()

    def try_policy(self, trial: Trial | None) -> None:
        """Judge every call by a candidate as well from now on; None ends the trial."""
        self.trial = trial
        self._notify()

    def without_action_rules(self, policy: Policy) -> Policy:
        """Return a policy without its rules about actions."""
        if self._bare is None or self._bare[0] is not policy:
            rules = tuple(r for r in policy.rules if not getattr(r, "reads_actions", False))
            self._bare = policy, replace(policy, rules=rules)
        return self._bare[1]

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call a function, on the event loop, after each change of policy."""
        self._listeners.append(listener)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def policy_for(self, identity: Identity) -> Policy | None:
        """Return the policy that decides on the calls of a principal."""
        return self.policy if self.trial is None else self.trial.policy(self.policy, identity)
