"""What a fitted classifier says of sends as the guard asks it: each one, in every session.

The paper scores one trigger session per run.  The guard scores every send, and the principal's
window as well, which holds the sessions before; these are the figures of that use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from guard.core.model import Role
from guard.core.trajectory import Trajectory
from guard.lab import histogram
from guard.lab.models import scores
from guard.lab.paper import FeatureSet

if TYPE_CHECKING:
    from typing import Any

    from guard.core.model import Json
    from guard.lab.dataset import Dataset


def score_sends(model: Any, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of every send and whether it names an attacker.

    Scores have shape (sends, 2): by the session and by the principal's window.  ``model`` takes
    the 13 prefix features.
    """
    rows: list[tuple[float, ...]] = []
    attacks: list[bool] = []
    for example in data.examples:
        sessions: dict[str, Trajectory] = {}
        principal = Trajectory()
        for step in example.steps:
            session = sessions.get(step.session, Trajectory())
            if step.role is Role.SEND:
                rows += [session.features_13(), principal.features_13()]
                attacks.append(step.to_attacker)
            sessions[step.session] = session.append(step.role)
            principal = principal.append(step.role)
    if not rows:
        return np.zeros((0, 2)), np.zeros(0, dtype=bool)
    answer = scores(model, np.array(rows, dtype=np.float32)).reshape(-1, 2)
    return answer, np.array(attacks, dtype=bool)


def describe_sends(scored: np.ndarray, attack: np.ndarray, threshold: float) -> dict[str, Json]:
    """Return how many sends are flagged, those to an attacker apart from the others."""
    return {
        name: {
            "sends": int(chosen.sum()),
            "flagged_by_session": int((scored[chosen, 0] >= threshold).sum()),
            "flagged_by_either": int((scored[chosen].max(axis=1) >= threshold).sum()),
        }
        for name, chosen in (("to_attacker", attack), ("other", ~attack))
    }


def score_histogram(model: Any, data: Dataset, features: FeatureSet) -> dict[str, Json]:
    """Return the distribution that live scores are compared with."""
    if features is FeatureSet.PREFIX13:
        scored, _ = score_sends(model, data)
        what = "every send of the training runs, the worse of session and principal's window"
        values = scored.max(axis=1) if len(scored) else scored[:, 0]
    else:
        what = "the trigger sessions of the training runs"
        values = scores(model, data.rows(features))
    return {"of": what, **histogram.count(values.tolist()).to_json()}


def flagged_first_sends(model: Any, data: Dataset, threshold: float) -> dict[str, Json]:
    """Return how many first sends a model of the 13 features flags, one per run that sends."""
    sending = np.array([Role.SEND in example.trigger for example in data.examples], dtype=bool)
    chosen = data.where(sending)
    if not len(chosen):
        return {"first_sends": 0, "flagged": 0}
    flagged = scores(model, chosen.rows(FeatureSet.PREFIX13)) >= threshold
    return {"first_sends": len(chosen), "flagged": int(flagged.sum())}
