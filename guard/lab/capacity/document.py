"""Puts the figures of a run into docs/capacity.md, between two marks, and draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from matplotlib.figure import Figure

from guard.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from guard.replay.reports import Report

BEGIN: Final = "<!-- figures: `guard lab bench capacity --document` writes what follows -->"
END: Final = "<!-- end of figures -->"
_FLEET: Final = {
    "agents": "agents",
    "calls_per_second": "calls/s",
    "workers": "workers",
    "shards": "Redis shards",
    "shards_by_time": "by time",
    "shards_by_memory": "by memory",
    "redis_gigabytes": "Redis GB",
    "redis_commands_per_second": "Redis commands/s",
    "audit_megabytes_per_second": "audit MB/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "dollars_per_million": "$ per million",
    "first_to_saturate": "full first",
}
_HOT: Final = {
    "calls_per_second": "calls/s of one tenant",
    "workers": "workers",
    "redis_busy": "its Redis is busy",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
}
_CHECKED: Final = {
    "workers": "workers",
    "agents": "agents",
    "measured_per_second": "measured calls/s",
    "simulated_per_second": "simulated",
    "error": "error",
    "other_programs_cores": "cores of other programs",
}


def put_into(document: Path, report: Report) -> None:
    """Replace the figures of a document, and draw the plot beside it (``figures/capacity.svg``).

    Raises:
        InputError: the document has no marks.
    """
    text = document.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        msg = f"`{document}` has no marks between which figures go"
        raise InputError(msg)
    figures = "\n\n".join(_sections(report))
    document.write_text(f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}", encoding="utf-8")
    drawn = document.parent / "figures" / "capacity.svg"
    drawn.parent.mkdir(exist_ok=True)
    draw(report.details, drawn)


def _sections(report: Report) -> Iterable[str]:
    details, where = report.details, report.machine
    others = details["other_programs_cores"]
    yield (
        f"Measured on {where['cpu']}, {where['cpus']} cores, Python {where['python']}, "
        f"while other programs used up to {others} cores"
        + ("." if others < 0.2 else ": times are longer than they would be alone.")
    )
    costs = details["costs_us"]
    rows = [{"process": kind, **cost} for kind, cost in costs.items()]
    yield "Processor time of a call's parts, in microseconds:\n\n" + _table(
        rows, {"process": "process", "look": "each look", "message": "each message"}
    )
    state = details["state"]
    yield (
        f"A call is {state['commands_per_call']:.2f} scripts in Redis "
        f"({state['redis_us_per_call']:.0f} µs inside them); a principal with one session "
        f"{state['bytes_per_principal']:.0f} bytes, a further session "
        f"{state['bytes_per_session']:.0f}, a labelled address {state['bytes_per_value']:.0f}, an "
        f"audit line {state['audit_bytes_per_decision']:.0f}."
    )
    yield "### Fleets\n\n" + _table(details["fleets"], _FLEET)
    hot = details["hot_tenant"]
    yield (
        "### A hot tenant\n\n" + _table(hot["loads"], _HOT) + "\n\n"
        f"One Redis does {hot['calls_per_second_at_most']:,} calls/s at most, half of it (as "
        f"planned) for {hot['agents_at_most']:,} agents. A fleet whose largest tenant has "
        f"{details['assumed']['hot_share']:.0%} of the calls ends at "
        f"{hot['fleet_calls_per_second_with_that_share']:,} calls/s, however many shards it has."
    )
    lost = details["failover"]
    settled = lost["seconds_until_p99_is_within_twice"]
    yield (
        f"### A failover\n\nA shard that is away for {lost['seconds_away']:.0f} s under "
        f"{lost['calls_per_second']} calls/s of a worker: {lost['refused']:,} refusals "
        f"({lost['refused_per_call_that_came_meanwhile']} for each call that came meanwhile, by "
        "agents that ask again after a second), no call passes unjudged, and the 99th percentile "
        + (f"is within twice the usual after {settled} s." if settled is not None else "stays up.")
    )
    yield "### The simulator against this machine\n\n" + _table(details["checked"], _CHECKED)


def _table(rows: list[dict[str, Any]], columns: dict[str, str]) -> str:
    head = "| " + " | ".join(columns.values()) + " |\n|" + "---|" * len(columns)
    lines = ("| " + " | ".join(_cell(row[name]) for name in columns) + " |" for row in rows)
    return "\n".join((head, *lines))


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def draw(details: dict[str, Any], path: Path) -> None:
    """Write what fleets need, and what the simulator says beside what was measured."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    needs, check = figure.subplots(1, 2)
    fleets = details["fleets"]
    agents = [row["agents"] for row in fleets]
    for name, label in (
        ("workers", "workers"),
        ("shards_by_memory", "shards, by memory"),
        ("shards_by_time", "shards, by time"),
    ):
        needs.plot(agents, [row[name] for row in fleets], "o-", label=label)
    pause = details["assumed"]["seconds_between_calls"]
    needs.set(
        xscale="log", yscale="log", xlabel=f"agents, a call each {pause:.0f} s", ylabel="needed"
    )
    needs.legend()
    for workers in sorted({row["workers"] for row in details["checked"]}):
        rows = sorted(
            (row for row in details["checked"] if row["workers"] == workers),
            key=lambda row: row["agents"],
        )
        across = [row["agents"] for row in rows]
        (line,) = check.plot(
            across, [row["simulated_per_second"] for row in rows], label=f"{workers}, simulated"
        )
        measured = [row["measured_per_second"] for row in rows]
        check.plot(across, measured, "o", color=line.get_color(), label=f"{workers}, measured")
    check.set(
        xscale="log",
        xlabel="agents that call again at once",
        ylabel="calls a second",
        ylim=(0, None),
    )
    check.legend(title="workers")
    figure.savefig(path)
