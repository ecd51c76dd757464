"""The console in Chromium: pages without an axe finding, hostile texts that stay text.

Where Chromium and its driver are, a core is part of every run; it is skipped, saying so, where they
are not, or where the machine is too busy for a browser.  ``make console-browser`` installs the
driver.
"""

import re

import pytest

from guard.settings import policies_directory
from tests.e2e import console_stage as bench
from tests.e2e.hostile_texts import hostile_texts
from tests.e2e.running_guard import ROOT

CORE_SECONDS = 60.0
MODULES = ROOT / "tests" / "browser"

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
        return bench.browse(modules, asked, CORE_SECONDS)
    except bench.BrowserSlowError as error:
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
