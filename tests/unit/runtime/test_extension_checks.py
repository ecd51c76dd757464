"""Checks of ``guard doctor`` for extras and for added classifiers."""

import pytest

from guard.runtime import extension_checks as checks
from guard.runtime.doctor_checks import Status


@pytest.mark.parametrize("extra", sorted(checks.EXTENSIONS))
def test_an_extension_without_its_packages_is_inactive(monkeypatch, extra):
    """The report names the packages and the extra."""
    own = {package for package, of in checks._requirements() if of == extra}
    monkeypatch.setattr(checks, "_is_installed", lambda package: package not in own)
    active, *others = checks.check_extensions()
    found = next(one for one in others if one.name == f"extension {extra}")
    assert found.status is Status.SKIP
    assert all(package in found.detail for package in own)
    assert f"[{extra}]" in found.advice
    assert extra not in active.detail.removeprefix("active: ").split(", ")


def test_an_unreadable_list_of_classifiers_fails(monkeypatch, tmp_path):
    """A manifest that is broken fails the check."""
    (tmp_path / "manifest.json").write_text("{", encoding="utf-8")
    monkeypatch.setattr("guard.inference.text_classifier.detectors_directory", lambda: tmp_path)
    (found,) = checks.check_classifiers()
    assert found.status is Status.FAIL
