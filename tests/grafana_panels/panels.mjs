// Draws panels of a dashboard with Grafana's own components, from the answers of a Prometheus.
// In: globalThis.draw({panels: [{panel, answers: [{legend, series}]}], from, to}); times in seconds.
import { createTheme, dateTime, FieldType, getDisplayProcessor, reduceField, ThemeContext } from "@grafana/data";
import { BigValue, BigValueColorMode, BigValueGraphMode, GlobalStyles, PanelChrome, TimeSeries } from "@grafana/ui";
import { createElement as e } from "react";
import { createRoot } from "react-dom/client";

const theme = createTheme({ colors: { mode: "light" } });
const LINE = { drawStyle: "line", lineInterpolation: "linear", lineWidth: 1, showPoints: "never", axisPlacement: "auto", axisWidth: 64 };

function field(panel, name, type, values, index, labels = {}) {
  const given = panel.fieldConfig.defaults;
  const config = { ...given, displayName: name, color: { mode: "palette-classic" }, custom: { ...LINE, ...given.custom } };
  const stack = config.custom.stacking;
  if (stack) config.custom.stacking = { group: "A", ...stack };
  const one = { name, type, values, config, labels, state: { seriesIndex: index, displayName: name } };
  one.display = getDisplayProcessor({ field: one, theme });
  return one;
}

function frames(panel, answers) {
  const named = (text, metric) => text.replace(/{{(\w+)}}/g, (_, label) => metric[label] ?? "");
  const series = answers.flatMap(({ legend, series }) => series.map((one) => ({ name: named(legend, one.metric) || "value", ...one })));
  return series.map(({ name, values }, index) => {
    const times = { name: "Time", type: FieldType.time, values: values.map(([at]) => at * 1000), config: {} };
    times.display = getDisplayProcessor({ field: times, theme });
    const numbers = values.map(([, value]) => (Number.isFinite(Number(value)) ? Number(value) : null));
    return { length: values.length, refId: `${index}`, fields: [times, field(panel, name, FieldType.number, numbers, index)] };
  });
}

function chart(panel, found, range, width, height) {
  if (panel.type === "stat") {
    const one = found[0]?.fields[1];
    const value = one?.values.filter((number) => number !== null).at(-1);
    return e(BigValue, { value: one ? one.display(value) : { text: "No data", numeric: NaN }, width, height, theme, colorMode: BigValueColorMode.Value, graphMode: BigValueGraphMode.None });
  }
  const legend = { showLegend: true, displayMode: "list", placement: "bottom", calcs: [] };
  return e(TimeSeries, { frames: found, structureRev: 1, timeRange: range, timeZone: "utc", width, height, legend, options: {} });
}

globalThis.draw = ({ panels, from, to }) => {
  const [start, end] = [dateTime(from * 1000), dateTime(to * 1000)];
  const range = { from: start, to: end, raw: { from: start, to: end } };
  const top = Math.min(...panels.map(({ panel }) => panel.gridPos.y));
  const placed = panels.map(({ panel, answers }) => {
    const { x, y, w, h } = panel.gridPos;
    const style = { position: "absolute", left: x * 50, top: (y - top) * 30, width: w * 50 - 8, height: h * 30 - 8 };
    const inner = (width, height) => chart(panel, frames(panel, answers), range, width, height);
    return e("div", { key: panel.id, style }, e(PanelChrome, { title: panel.title, width: style.width, height: style.height }, inner));
  });
  document.body.style.background = theme.colors.background.canvas;
  document.body.style.margin = "8px";
  const root = document.body.appendChild(document.createElement("main"));
  const bottom = Math.max(...panels.map(({ panel }) => panel.gridPos.y + panel.gridPos.h));
  Object.assign(root.style, { position: "relative", display: "block", height: `${(bottom - top) * 30}px` });
  createRoot(root).render(e(ThemeContext.Provider, { value: theme }, e(GlobalStyles), ...placed));
};
