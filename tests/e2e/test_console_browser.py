"""The console in Chromium: an operator's work without an axe finding, hostile texts that stay text.

``make console-browser`` installs what drives the browser and writes the pictures of
``docs/console.md``; without that these tests are skipped.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from guard.lab.console import bench, film
from guard.lab.console.hostile_texts import hostile_texts
from guard.settings import policies_directory
from tests.e2e.running_guard import ROOT

MODULES = ROOT / "tests" / "browser"
PICTURES = ROOT / "docs" / "figures" / "console"

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture
def modules():
    """Where the browser's driver is; skip where there is none."""
    if shutil.which("chromium") is None or shutil.which("node") is None:
        pytest.skip("chromium or node is not installed")
    if not (MODULES / "node_modules" / "playwright-core").is_dir():
        pytest.skip("playwright-core is not installed: make console-browser")
    return MODULES


def test_an_operators_work_has_no_axe_finding(modules, tmp_path):
    """From the first look to a trial, light and dark: 0 violations, nothing runs, one origin."""
    place = Path(os.environ.get("GUARD_SCREENSHOTS", tmp_path))
    place.mkdir(parents=True, exist_ok=True)
    with film.staged() as on:
        found = film.shot(on, modules, place)

    assert found["violations"] == []
    assert (found["executed"], found["foreign"]) == (0, [])
    pictures = {one.stem for one in place.glob("*.png")}
    assert pictures == set(film.PICTURES)
    assert all(one.stat().st_size > 5000 for one in place.glob("*.png"))


def test_hostile_texts_stay_text(modules):
    """A core of the corpus through the guard, on every page; as markup the same texts do run."""
    texts = hostile_texts()[::26]
    with bench.stage(policies_directory() / "default.yaml") as on:
        pages, shown = bench.play_hostile(on, texts)
        asked = {"url": on.url, "secret": bench.SECRET, "axe": False}
        found = bench.browse(modules, {**asked, "pages": pages, "control": texts})

    assert (len(texts), shown > 0) == (30, True)
    assert (found["executed"], found["foreign"]) == (0, [])
    assert found["control"] > 0


def test_every_picture_of_the_film_is_in_the_documentation():
    """What the run shoots is what docs/console.md shows, and nothing else lies there."""
    text = (ROOT / "docs" / "console.md").read_text("utf-8")
    named = set(re.findall(r"figures/console/([a-z]+)\.png", text))
    assert named == set(film.PICTURES) == {one.stem for one in PICTURES.glob("*")}
