// Keys and labels; everything else works without it.
"use strict";
(() => {
  const csrf = document.querySelector("input[name=csrf]");
  document.addEventListener("htmx:configRequest", (event) => {
    if (csrf) event.detail.headers["x-csrf-token"] = csrf.value;
  });
  const degraded = document.querySelector("#degraded");
  const live = (hidden) => () => { if (degraded) degraded.hidden = hidden; };
  document.addEventListener("htmx:afterSwap", live(true));
  for (const failure of ["htmx:responseError", "htmx:sendError"]) document.addEventListener(failure, live(false));
  // On a phone a row is a card, which names each cell by its column.
  const label = (row) => {
    const heads = row.closest("table").querySelectorAll("thead th");
    [...row.cells].forEach((cell, at) => { if (heads[at]) cell.dataset.label = heads[at].textContent; });
  };
  for (const table of document.querySelectorAll("table")) {
    for (const part of table.tBodies) {
      [...part.rows].forEach(label);
      new MutationObserver((changes) => changes.forEach((one) => one.addedNodes.forEach((row) => {
        if (row.cells) label(row);
      }))).observe(part, { childList: true });
    }
  }
  // A problem's line in the editor.
  document.addEventListener("click", (event) => {
    const at = event.target.closest("button[data-line]");
    const text = document.querySelector("textarea#text");
    if (!at || !text) return;
    const lines = text.value.split("\n");
    const line = Math.max(1, Math.min(lines.length, Number(at.dataset.line)));
    const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    text.focus();
    text.setSelectionRange(start, start + lines[line - 1].length);
    text.scrollTop = (line - 4) * (text.scrollHeight / lines.length);
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (page) { page.click(); return; }
    const step = { j: 1, k: -1 }[event.key];
    if (!step) return;
    const stops = [...document.querySelectorAll("main tbody tr td:first-child a, main article h2 a")];
    const next = stops[stops.indexOf(document.activeElement) + step];
    if (next) next.focus();
  });
})();
