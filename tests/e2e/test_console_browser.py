"""The console in Chromium: an operator's work without an axe finding, hostile texts that stay text.

Where Chromium and its driver are, a core is part of every run; it is skipped, saying so, where they
are not, or where the machine is too busy for a browser.  ``make console-browser`` installs the
driver, runs everything, skips nothing for slowness, and writes the pictures of
``docs/console.md``.
"""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from guard.lab.console import bench, film
from guard.lab.console.hostile_texts import hostile_texts
from guard.settings import policies_directory
from tests.e2e.running_guard import ROOT, wait_until

WHOLE = "GUARD_SCREENSHOTS" in os.environ
CORE_SECONDS = 60.0
MODULES = ROOT / "tests" / "browser"
PICTURES = ROOT / "docs" / "figures" / "console"

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.programs("chromium", "node")]


@pytest.fixture
def modules():
    """Where the browser's driver is; skip where there is none."""
    if not (MODULES / ".installed").is_file():  # An installation that was cut short has a part.
        pytest.skip("playwright-core is not installed: make console-browser")
    return MODULES


def browsed(modules, asked):
    """Return what Chromium found in a core; skip where it was too slow."""
    try:
        return bench.browse(modules, asked, 900.0 if WHOLE else CORE_SECONDS)
    except bench.BrowserSlowError as error:
        if WHOLE:
            raise
        pytest.skip(f"the machine is too busy for a browser: {error}")


def test_the_core_of_the_console(modules):
    """Each kind of page, with hostile texts on it: nothing runs, one origin, 0 axe violations."""
    texts = hostile_texts()[::65]
    with bench.stage(policies_directory() / "default.yaml") as on:
        pages, shown = bench.play_hostile(on, texts)
        kinds = {re.sub(r"[0-9a-f]{12,}|=.*", "", page): page for page in pages}
        base = {"url": on.url, "secret": bench.SECRET}
        pages = list(kinds.values())
        found = browsed(modules, {**base, "pages": pages, "axe": False, "control": texts})
        asked = {**base, "pages": [*bench.PAGES[:2], pages[-1]], "axe": True, "quick": True}
        axe = browsed(modules, asked)

    assert (len(texts), shown > 0, len(pages) >= len(bench.PAGES)) == (12, True, True)
    assert (found["viewed"], found["executed"], found["foreign"]) == (len(pages), 0, [])
    assert found["control"] > 0
    assert (axe["violations"], axe["opened"]) == ([], 6)


@pytest.mark.timeout(2400)  # Of two walks through the console, either may last 900 seconds.
@pytest.mark.skipif(not WHOLE, reason="the film is shot by make console-browser")
def test_an_operators_work_has_no_axe_finding(modules):
    """From the first look to a trial, light and dark: 0 violations, nothing runs, one origin."""
    place = Path(os.environ["GUARD_SCREENSHOTS"])
    place.mkdir(parents=True, exist_ok=True)
    with film.staged() as on:
        found = film.shot(on, modules, place)

    assert found["violations"] == []
    assert (found["executed"], found["foreign"]) == (0, [])
    pictures = {one.stem for one in place.glob("*.png")}
    assert pictures == set(film.PICTURES)
    assert all(one.stat().st_size > 5000 for one in place.glob("*.png"))


def test_a_browser_that_hangs_is_ended(modules, tmp_path):
    """A page that never answers: the driver gives up in time, and Chromium does not outlive it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asked = {"url": f"http://127.0.0.1:{silent.getsockname()[1]}", "secret": "", "pages": []}
        with pytest.raises(bench.BrowserSlowError, match="not done after 8"):
            bench.browse(modules, {**asked, "profiles": str(tmp_path)}, 8.0)

    def is_gone():
        for one in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if str(tmp_path).encode() in one.read_bytes():
                    return False
        return True

    assert list(tmp_path.iterdir()) != []
    wait_until(is_gone, "the end of chromium")


def test_every_picture_of_the_film_is_in_the_documentation():
    """What the run shoots is what docs/console.md shows, and nothing else lies there."""
    text = (ROOT / "docs" / "console.md").read_text("utf-8")
    named = set(re.findall(r"figures/console/([a-z]+)\.png", text))
    assert named == set(film.PICTURES) == {one.stem for one in PICTURES.glob("*")}
