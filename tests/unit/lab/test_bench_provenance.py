"""Tests of the provenance benchmark: its ids, and that it says what it did not measure.

No time is asserted: machines differ, and this one is busy.
"""

from guard.settings import policies_directory
from lab.bench_provenance import Size, bench_provenance

SMALL = Size(values=500, calls=100, decisions=50, sample=2, rounds=0)


def test_the_benchmark_has_every_id_and_one_round_trip_each_way():
    """A figure over fewer values or calls than its id says is null with a reason."""
    shares = []

    def told(_stage, share):
        shares.append(share)

    report = bench_provenance(policies_directory() / "default.yaml", SMALL, told)

    found = {check.id: check for check in report.checks}
    assert (found["round_trips_request"].value, found["round_trips_result"].value) == (1.0, 1.0)
    assert found["decision_p50_ms"].n == 50
    assert found["bytes_per_value"].value > 0
    for unmeasured in (
        "growth_values_1000000_vs_100",
        "growth_call_100000_vs_10",
        "ratio_vs_mitmdump_c16",
    ):
        assert found[unmeasured].value is None
        assert found[unmeasured].reason
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] <= 1
