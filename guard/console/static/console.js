// Live rows and keys; everything else works without it.
"use strict";
(() => {
  const LIMIT = 200;
  const csrf = document.querySelector("input[name=csrf]");
  document.addEventListener("htmx:configRequest", (event) => {
    if (csrf) event.detail.headers["x-csrf-token"] = csrf.value;
  });
  const body = document.querySelector("#live tbody");
  if (body) {
    const first = body.querySelector("tr[data-id]");
    const feed = new EventSource("/feed?after=" + (first ? first.dataset.id : "0"));
    let waiting = [];
    feed.addEventListener("decision", (event) => {
      waiting.push(event.data);
      if (waiting.length === 1) requestAnimationFrame(() => {
        // Rows come from the server's template, where all text is escaped.
        body.insertAdjacentHTML("afterbegin", waiting.slice(-LIMIT).reverse().join(""));
        waiting = [];
        while (body.rows.length > LIMIT) body.deleteRow(-1);
      });
    });
    const degraded = document.querySelector("#degraded");
    feed.addEventListener("degraded", () => { if (degraded) degraded.hidden = false; });
    feed.addEventListener("restored", () => { if (degraded) degraded.hidden = true; });
    feed.addEventListener("stale", () => { feed.close(); location.reload(); });
  }
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
