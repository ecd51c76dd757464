"""Selections of graph memories in policy files: what they mean, and what they are warned of."""

from __future__ import annotations

import pytest

from guard.policy import load_policies
from lab.selection.live import POLICY

TEXT = POLICY.read_text(encoding="utf-8")
WHO = "authenticated_by: {principals: [curator], label: advisory}"
SEEDS = "seeds: {path: $.query, match: text}"


@pytest.fixture
def loaded(tmp_path):
    """Return what loads the policy with some of its text changed, and its warnings."""

    def load(*changes):
        text = TEXT.replace('"$.query"', "$.query")
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        path = tmp_path / "policy.yaml"
        path.write_text(text, encoding="utf-8")
        policy = load_policies([path])
        return policy, [str(warning) for warning in policy.source.warnings]

    return load


WARNED = {
    "label-alone": (WHO, "authenticated_by: {label: authenticated}", "`advisory`"),
    "default-label": (WHO, "authenticated_by: {principals: [curator]}", "`advisory`"),
    "no-source-of-it": (
        WHO, "authenticated_by: {sources: [tool_result], label: trusted}", "no structure counts",
    ),
    "no-selector": ("      selector: pagerank\n", "", "without `selector`"),
    "nothing-ranked": (
        (f'        ranked:\n          items: "$.results[*]"\n          id: "$.record"\n'
        f"          {SEEDS}\n"), "", "has `ranked`",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "said"), WARNED.values(), ids=WARNED)
def test_a_selection_under_which_nothing_can_vouch_is_warned_of(loaded, before, after, said):
    """With file and line; the same policy as it is shipped is not."""
    _, warnings = loaded((before, after))
    assert any(said in one and "policy.yaml:" in one for one in warnings)
    assert loaded()[1] == []


def test_seeds_are_the_stores_unless_a_read_has_its_own(loaded):
    """As the whole selection is per store."""
    own, _ = loaded()
    moved = ("      top_k: 5\n", f"      top_k: 5\n      {SEEDS}\n")
    stores, _ = loaded((f"          {SEEDS}\n", ""), moved)
    [one], [other] = (p.selections["graph"].ranked for p in (own, stores))
    found = [list(ranked.seeds.find({"query": "q"})) for ranked in (one, other)]
    assert found[0] == found[1] != []
    assert other.names_in_text
    neither, _ = loaded((f"          {SEEDS}\n", ""))
    assert neither.selections["graph"].ranked[0].seeds is None
