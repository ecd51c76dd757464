// Views pages of a console in Chromium: node browse.mjs < JSON, with playwright-core and axe-core in NODE_PATH.
// In: {url, secret, seconds, profiles, pages: [...], axe: bool, quick: bool, control: [texts], film: [steps], diagrams: [{text, file}],
// board: {script, data, file}}; a step is
// {go: path, fill: {selector: text}, click: selector, press: [keys], wait: selector, slow: bool, file: picture}.
// Out: {executed, control, violations: [...], foreign: [...], viewed}.
// Every wait has an end; after `seconds` in all it says what it was doing, and exits with 3.
import { createRequire } from "node:module";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const modules = process.env.BROWSER_MODULES;
const require = createRequire(join(modules, "x.js"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const asked = JSON.parse(readFileSync(0, "utf8"));
const profile = mkdtempSync(join(asked.profiles, "console-browser-"));
const found = { executed: 0, control: 0, violations: [], foreign: [], viewed: 0, opened: 0 };

const deadline = Date.now() + asked.seconds * 1000;
let doing = "starting chromium";
// Not only awaited: a page whose renderer hangs answers no evaluate, and has no time-out of its own.
const watchdog = setTimeout(() => {
  process.stderr.write(`not done after ${asked.seconds} s: ${doing}\n`);
  process.exit(3);
}, asked.seconds * 1000);
const left = (most) => Math.max(1, Math.min(most, deadline - Date.now()));

async function watched(context, count) {
  await context.exposeFunction("xss", () => { count(); });
  context.on("page", (page) => page.on("dialog", async (dialog) => { count(); await dialog.dismiss(); }));
}

const browser = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  headless: true,
  timeout: left(60000),
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
  bypassCSP: false,
});
try {
  let control = false;
  await watched(browser, () => { control ? found.control++ : found.executed++; });
  browser.setDefaultTimeout(left(60000));
  const page = await browser.newPage();
  page.on("request", (request) => {
    const where = new URL(request.url());
    if (!["data:", "about:"].includes(where.protocol) && where.origin !== asked.url && !control) found.foreign.push(where.origin);
  });
  await page.goto(asked.url + "/sign-in");
  await page.fill("input[name=secret]", asked.secret);
  await page.click("main button");
  await page.waitForURL(asked.url + "/");
  const look = async () => {
    // axe needs to be evaluated by the driver, not by the page: its policy forbids inline scripts.
    await page.evaluate(axe);
    const result = await page.evaluate(() => globalThis.axe.run(document));
    for (const one of result.violations) found.violations.push(`${new URL(page.url()).pathname}: ${one.id}: ${one.nodes[0].target}`);
  };
  // On a phone a table may scroll in its frame; the page may not.
  const fits = async (width) => {
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (wide > 0) found.violations.push(`${new URL(page.url()).pathname}: wider than the window of ${width} by ${wide}`);
  };
  for (const path of asked.pages) {
    doing = path;
    await page.goto(asked.url + path, { waitUntil: "load" });
    found.viewed++;
    if (asked.axe) {
      const widths = asked.quick ? [390] : [1200, 390];
      for (const scheme of ["light", "dark"]) for (const width of widths) {
        await page.emulateMedia({ colorScheme: scheme });
        await page.setViewportSize({ width, height: 800 });
        await look();
        await fits(width);
        found.opened++;
      }
      await page.setViewportSize({ width: 1200, height: 800 });
      await page.emulateMedia({ colorScheme: "light" });
    } else {
      // What waits for a click, a focus or the pointer.
      await page.evaluate(() => {
        for (const one of document.querySelectorAll("main *")) {
          for (const kind of ["click", "focus", "mouseover", "pointerenter", "animationstart", "toggle", "error", "load"]) {
            if (kind !== "click" || !one.closest("a, button")) one.dispatchEvent(new Event(kind, { bubbles: false }));
          }
        }
        for (const one of document.querySelectorAll("main a")) if (/^\s*(javascript|data|vbscript):/i.test(one.getAttribute("href"))) globalThis.xss();
      });
      await page.waitForTimeout(30);
    }
  }
  for (const step of asked.film ?? []) {
    const timeout = left(step.slow ? 300000 : 60000);
    doing = JSON.stringify(step).slice(0, 200);
    if (step.go) await page.goto(asked.url + step.go, { waitUntil: "load", timeout });
    // A link leads to the page that is filled in; a button sends it.
    if (step.click && step.fill && await page.locator(Object.keys(step.fill)[0]).count() === 0) {
      await page.click(step.click, { timeout });
      step.click = "";
    }
    for (const [where, text] of Object.entries(step.fill ?? {})) await page.fill(where, text, { timeout });
    if (step.click) await page.click(step.click, { timeout });
    for (const key of step.press ?? []) await page.keyboard.press(key);
    if (step.wait) await page.locator(step.wait).first().waitFor({ timeout });
    if (!step.file) continue;
    for (const scheme of ["dark", "light"]) {
      await page.emulateMedia({ colorScheme: scheme });
      await look();
      found.opened++;
    }
    await page.setViewportSize({ width: 390, height: 800 });
    await fits(390);
    await page.setViewportSize({ width: 1200, height: 800 });
    await page.evaluate(() => window.scrollTo(0, 0));
    const height = await page.evaluate(() => Math.min(document.documentElement.scrollHeight, 800));
    await page.screenshot({ path: step.file, fullPage: true, clip: { x: 0, y: 0, width: 1200, height } });
  }
  for (const { text, file } of asked.diagrams ?? []) {
    doing = `drawing ${file}`;
    const drawing = await browser.newPage();
    await drawing.addScriptTag({ path: join(modules, "node_modules/mermaid/dist/mermaid.min.js") });
    const svg = await drawing.evaluate(async (source) => {
      const look = { startOnLoad: false, theme: "neutral", htmlLabels: false, flowchart: { htmlLabels: false } };
      globalThis.mermaid.initialize(look);
      return (await globalThis.mermaid.render("diagram", source)).svg;
    }, text);
    writeFileSync(file, svg + "\n");
  }
  if (asked.board) {
    const { script, data, file } = asked.board;
    doing = `drawing ${file}`;
    const drawing = await browser.newPage();
    await drawing.setViewportSize({ width: 1200, height: 10 });
    await drawing.emulateMedia({ colorScheme: "light" });
    // Grafana's components read the local storage, which a blank page lacks.
    await drawing.route("**/*", (route) => route.fulfill({ contentType: "text/html", body: "<!doctype html>" }));
    await drawing.goto(asked.url);
    await drawing.addStyleTag({ path: script.replace(/js$/, "css") });
    await drawing.addScriptTag({ path: script });
    await drawing.evaluate((given) => globalThis.draw(given), data);
    await drawing.locator("main canvas").first().waitFor({ timeout: left(60000) });
    await drawing.waitForTimeout(2000);
    await drawing.screenshot({ path: file, fullPage: true });
  }
  if (asked.control) {
    control = true;
    const plain = await browser.newPage();
    for (const text of asked.control) {
      doing = `showing as markup ${text}`;
      await plain.setContent(`<main><p>${text}</p></main>`, { waitUntil: "commit", timeout: left(2000) }).catch(() => {});
      await plain.waitForTimeout(5);
    }
    await plain.waitForTimeout(300);
  }
} finally {
  doing = "ending chromium";
  await Promise.race([browser.close(), new Promise((ended) => setTimeout(ended, 10000))]);
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
}
clearTimeout(watchdog);
process.stdout.write(JSON.stringify(found) + "\n", () => process.exit(0));
