"""What the dashboards are made of: panels, variables, annotations.  Pure: no I/O."""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import StackingMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")

Query: TypeAlias = tuple[str, str]
"""An expression, and the legend of its series."""
Panel: TypeAlias = Any
"""Any panel builder; the library gives them no common base."""

I: Final = 'instance=~"$instance"'  # noqa: E741  (it stands in every query)
RATE: Final = "[$__rate_interval]"


def quantile(q: float, metric: str) -> str:
    """Return a quantile of a histogram over the rate interval."""
    return f"histogram_quantile({q}, sum by (le) (rate({metric}_bucket{{{I}}}{RATE})))"


def quantiles(metric: str) -> tuple[Query, ...]:
    """Return the median, the 95th and the 99th percentile."""
    return tuple((quantile(q, metric), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99))


# --- panels -------------------------------------------------------------------------------------


def _finish(panel: Panel, queries: tuple[Query, ...], form: dict[str, Any], note: str) -> Panel:
    for index, (expression, legend) in enumerate(queries):
        target = prometheus.Dataquery().expr(expression).legend_format(legend)
        target.ref_id(chr(ord("A") + index))
        target.format(form.get("format", PromQueryFormat.TIME_SERIES))
        if form.get("instant"):
            target.instant()
        else:
            target.range()
        panel.with_target(target)
    panel.datasource(SOURCE).description(note).height(form["height"]).span(form["width"])
    return panel.unit(form["unit"]) if form.get("unit") else panel


def number(
    title: str, note: str, query: str, unit: str, *, warn: float | None = None, width: int = 4
) -> Panel:
    """Return the latest value, large; red from ``warn`` on."""
    steps = [Threshold(None, "green")] + ([Threshold(warn, "red")] if warn is not None else [])
    panel = stat.Panel().title(title)
    panel.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    form = {"unit": unit, "height": 4, "width": width}
    return _finish(panel, ((query, ""),), form, note)


def lines(
    title: str, note: str, *queries: Query, unit: str, width: int = 12, stacked: bool = False
) -> Panel:
    """Return lines over time."""
    panel = timeseries.Panel().title(title).fill_opacity(25 if stacked else 5).min(0)
    if stacked:
        panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    return _finish(panel, queries, {"unit": unit, "height": 8, "width": width}, note)


def bars(title: str, note: str, query: str, legend: str) -> Panel:
    """Return the totals over the dashboard's time range, as horizontal bars."""
    panel = bargauge.Panel().title(title).orientation("horizontal").min(0)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    form = {"unit": "short", "height": 8, "width": 12, "instant": True}
    return _finish(panel, ((query, legend),), form, note)


def buckets(title: str, note: str, metric: str, unit: str, width: int = 12) -> Panel:
    """Return a histogram over time, as a heat map."""
    query = f"sum by (le) (increase({metric}_bucket{{{I}}}{RATE}))"
    panel = heatmap.Panel().title(title).calculate(False)  # noqa: FBT003  (the library's word)
    panel.y_axis(heatmap.YAxisConfig().unit(unit))
    form = {"height": 8, "width": width, "format": PromQueryFormat.HEATMAP}
    return _finish(panel, ((query, "{{le}}"),), form, note)


def states(title: str, note: str, query: str, legend: str) -> Panel:
    """Return which of several gauges are set, over time."""
    steps = [Threshold(None, "green"), Threshold(1, "red")]
    panel = statetimeline.Panel().title(title)
    panel.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    return _finish(panel, ((query, legend),), {"height": 8, "width": 12}, note)


def rows(title: str, note: str, query: str) -> Panel:
    """Return labels of series as a table."""
    form = {"height": 6, "width": 12, "instant": True, "format": PromQueryFormat.TABLE}
    return _finish(table.Panel().title(title), ((query, ""),), form, note)


# --- what every dashboard has -------------------------------------------------------------------


def _chosen(name: str, label: str, query: str) -> dashboard.QueryVariable:
    variable = dashboard.QueryVariable(name).label(label).query(query).datasource(SOURCE)
    variable.multi(True).include_all(True)  # noqa: FBT003  (the library's words)
    if name != "instance":
        # "All" instances are those of the policies chosen, not every one there is.
        variable.all_value(".*")
    variable.current(VariableOption(text=["All"], value=["$__all"]))
    return variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(
        VariableSort.ALPHABETICAL_ASC
    )


VARIABLES: Final = (
    ("policy", "Policy", "label_values(guard_policy_info, name)"),
    ("instance", "Instance", 'label_values(guard_policy_info{name=~"$policy"}, instance)'),
    ("mode", "Mode", 'label_values(guard_decisions_total{instance=~"$instance"}, mode)'),
)
ANNOTATIONS: Final = (
    (
        "Policy changes",
        "blue",
        f"guard_policy_info{{{I}}} unless on (job, instance, digest) guard_policy_info offset 1m",
        "policy {{name}} in force on {{instance}}",
        "{{digest}}",
    ),
    (
        "Policy reloads refused",
        "red",
        f'increase(guard_policy_reloads_total{{outcome="kept", {I}}}[2m]) > 0',
        "policy files with a problem on {{instance}}",
        "see the audit line guard.policy_reload",
    ),
    (
        "Worker restarts",
        "orange",
        f"increase(guard_worker_restarts{{{I}}}[2m]) > 0",
        "worker replaced on {{instance}}",
        "see the audit line guard.worker_lost",
    ),
)
"""Name, colour, expression, title, text."""


def board(
    uid: str, title: str, about: str, sections: dict[str, tuple[Panel, ...]]
) -> dict[str, Any]:
    """Return one dashboard as the JSON that Grafana imports."""
    builder = dashboard.Dashboard(title).uid(uid).description(about).tags(["agent-egress-guard"])
    builder.time("now-6h", "now").refresh("30s").timezone("browser")
    builder.tooltip(DashboardCursorSync.CROSSHAIR)
    builder.with_variable(
        dashboard.DatasourceVariable("datasource").label("Source").type("prometheus")
    )
    for name, label, query in VARIABLES:
        builder.with_variable(_chosen(name, label, query))
    for name, panels in sections.items():
        builder.with_row(dashboard.Row(name))
        for panel in panels:
            builder.with_panel(panel)
    document: dict[str, Any] = json.loads(JSONEncoder().encode(builder.build()))
    for number_, panel in enumerate(document["panels"], start=1):
        panel["id"] = number_
    # The library knows no data source's own annotation fields.
    document["annotations"] = {
        "list": [
            {
                "name": name,
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "enable": True,
                "hide": False,
                "iconColor": colour,
                "expr": expression,
                "step": "60s",
                "titleFormat": heading,
                "textFormat": text,
            }
            for name, colour, expression, heading, text in ANNOTATIONS
        ]
    }
    return document
