"""The first hour: how many lines of policy somebody wrote."""

import pytest

from guard.policy_files import load_policies
from lab.adopt.setup import _mappings, lines_written

MADE = {"policy.yaml": "version: 1\nname: p\nallow: []\n"}


@pytest.mark.parametrize(
    ("used", "written"),
    [
        (MADE, 0),
        ({"policy.yaml": "version: 1\nname: p\n"}, 0),
        ({"policy.yaml": "version: 1\nname: p\nallow: [a@b.example]\n"}, 1),
        ({"policy.yaml": MADE["policy.yaml"] + "deny: []\nrules: []\n"}, 2),
        ({**MADE, "mine.yaml": "version: 1\nname: mine\n"}, 2),
    ],
)
def test_each_line_that_is_not_as_proposed_counts(used, written):
    """An edited line, an added one, and every line of a file of one's own."""
    assert lines_written(MADE, used) == written


def test_what_is_written_by_hand_is_a_policy(tmp_path):
    """It loads beside one that blocks, and maps the tools."""
    path = tmp_path / "by_hand.yaml"
    path.write_text(_mappings(["list_directory"]), "utf-8")
    base = tmp_path / "p.yaml"
    base.write_text("version: 1\nname: p\nextends: builtin:office\n", "utf-8")

    assert load_policies([base, path]).mapping("list_directory").role.value == "retrieve"
