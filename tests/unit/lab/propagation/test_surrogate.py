"""The paper's surrogate: its worlds are what they say, and the detector needs what it is given."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("mpe2", reason="the lab is not installed")
surrogate = pytest.importorskip("lab.propagation.surrogate")
evaluation = pytest.importorskip("lab.propagation.evaluation")
# Here, because matplotlib starts `fc-list` when it is imported by a user who has no cache of fonts.
figures = pytest.importorskip("lab.propagation.figures")
world_module = pytest.importorskip("lab.propagation.world")
from lab.propagation import detectors, draws, encoder  # noqa: E402
from lab.propagation.detectors import auc, best_f1, signals  # noqa: E402
from lab.propagation.encoder import Settings  # noqa: E402

ITEMS = 1500


@pytest.fixture(scope="module")
def world():
    """Return one draw."""
    return world_module.draw(ITEMS, 0.05, 0)


@pytest.fixture(scope="module")
def groups(world):
    """Return what one draw shows, everything measured."""
    return evaluation.evaluate(world, 0, others=True, slow=True, how=Settings(steps=15))


def test_one_seed_gives_one_world(world):
    """Also the parameters; another seed gives another."""
    again, other = (world_module.draw(ITEMS, 0.05, seed) for seed in (0, 1))

    assert np.array_equal(again.embeddings, world.embeddings)
    assert again.parameters == world.parameters != other.parameters
    for name, (low, high) in world_module.RANGES.items():
        assert low <= world.parameters[name] <= high


def test_what_carries_poison_on_does_what_it_was_made_from(world):
    """Along a chain of copies the action is that of the first."""
    carried = np.flatnonzero(world.poisoned & ~world.injected)

    assert len(carried)
    assert (world.actions[carried] == world.actions[world.parents[carried]]).all()
    assert (world.parents[carried] < carried).all()
    assert (world.actions[world.injected] != world.right[world.injected]).all()


def test_camouflaged_items_lie_near_the_benign_centre(world):
    """Type II has a cosine of at least 0.90 with its centroid."""
    second = np.flatnonzero(world.kinds == 1)
    for scenario in np.unique(world.scenarios[second])[:5]:
        mine = world.scenarios == scenario
        centre = world.embeddings[mine & (world.kinds < 0)].mean(axis=0)
        cosine = world.embeddings[mine & (world.kinds == 1)] @ centre / np.linalg.norm(centre)

        assert (cosine >= world_module.CAMOUFLAGE - 1e-6).all()


def test_nobody_is_a_witness_for_himself(world):
    """Witnesses are other agents of the same domain, and what is only modified keeps its vector."""
    found = signals(world)
    counted = found.likeness > 0

    assert (world.agents[found.witnesses] != world.agents[:, None])[counted].all()
    assert (world.domains[found.witnesses] == world.domains[:, None])[counted].all()
    modified = world_module.draw(ITEMS, 0.05, 0, world_module.CAPABILITIES["C2"])
    assert not np.array_equal(modified.actions, world.actions)
    assert (modified.outcomes[modified.injected]).mean() > 0.8


def test_a_lone_memory_has_no_witness(world):
    """Where the agents of a scenario are gone but for one memory, it stands alone."""
    groups = np.where(np.arange(ITEMS) == 7, -1, world.scenarios)

    assert not signals(world, groups).likeness[7].any()


def test_the_detector_tells_poison_and_needs_its_evidence(groups):
    """Without witnesses it is much worse, and as printed worse than ours."""
    assert groups["auc"]["ours"] > 0.95
    assert groups["auc"]["ours"] > groups["auc"]["ours_as_printed"]
    assert groups["without"]["everywhere_agreement"] < groups["auc"]["ours"] - 0.05
    assert groups["ours"]["coverage_after"] < groups["ours"]["coverage_before"]
    assert groups["ours"]["misbehaviour_after"] < groups["ours"]["misbehaviour_before"]


def test_every_detector_of_table_1_is_measured(groups):
    """With what disturbs it, and how its accuracy varies."""
    for name in (*surrogate.TABLE_1, "supervised_linear"):
        assert {"auc_inactive", "auc_interference", "accuracy_fluctuation"} <= groups[name].keys()


def test_an_autoencoder_puts_little_right(groups):
    """It was shown the wrong action, and gives it back: withholding leaves less harm."""
    found = groups["rewriting"]
    for how in ("whole", "filled_in"):
        assert 0 <= found[f"{how}_poison_put_right"] < 0.5
        assert found[f"{how}_misbehaviour_after"] > groups["ours"]["misbehaviour_after"]


def test_the_machine_on_distances_is_the_library_s_on_vectors(world, monkeypatch):
    """What One-Class SVM is given is its own kernel, worked out once for the whole grid."""
    monkeypatch.setattr(detectors, "TRAINED", 200)
    svm = pytest.importorskip("sklearn.svm", reason="the lab is not installed")
    learn, check = world.scenarios < 20, world.scenarios >= 40
    ours = detectors.fit_one_class_svm(world, None, learn, check)(world, None)
    known = world.embeddings[np.flatnonzero(learn)[: detectors.TRAINED]]
    alike = [
        np.corrcoef(
            ours,
            -svm.OneClassSVM(nu=nu, gamma=gamma).fit(known).score_samples(world.embeddings),
        )[0, 1]
        for nu in (0.01, 0.05, 0.1)
        for gamma in (1 / 768, 0.1 / 768, 10 / 768)
    ]

    assert max(alike) == pytest.approx(1.0, abs=1e-4)


def test_the_encoder_is_given_no_labels_but_for_its_last_layer(world, monkeypatch):
    """Negatives are the least credible items and the contradicted ones, whatever their label."""
    given = []

    def watched(rows, doubtful, groups, poisoned, how):
        given.append((doubtful, groups, poisoned))
        return encoder.train(rows, doubtful, groups, poisoned, how)

    monkeypatch.setattr(detectors, "train", watched)
    found, learn = signals(world), world.scenarios < 20
    detectors.fit_ours(world, found, learn, Settings(steps=1))
    honest = replace(world, poisoned=np.zeros_like(world.poisoned))
    detectors.fit_ours(honest, found, learn, Settings(steps=1))
    [(doubtful, groups, poisoned), (again, _, _)] = given

    assert np.array_equal(doubtful, again)
    assert detectors.DOUBTFUL <= doubtful.mean() < 0.5
    assert doubtful[found.agreement[learn] < detectors.HALF].all()
    assert np.array_equal(poisoned, world.poisoned[learn])
    assert len(np.unique(groups)) > len(np.unique(world.scenarios[learn])) * 8


def test_what_could_be_told_best_is():
    """AUC and threshold by hand."""
    truth = np.array([False, False, True, True])

    assert auc(np.array([0.1, 0.2, 0.3, 0.4]), truth) == 1.0
    assert auc(np.array([0.5, 0.5, 0.5, 0.5]), truth) == 0.5
    assert best_f1(np.array([0.1, 0.35, 0.3, 0.4]), truth)[0] == pytest.approx(0.3)


def test_the_tables_are_of_the_run_that_the_figures_show(tmp_path, world, groups, monkeypatch):
    """Each figure of the paper's tables stands beside ours, each term and type has its row."""
    monkeypatch.setattr(surrogate, "draw", lambda *_: world)
    monkeypatch.setattr(surrogate, "evaluate", lambda *_, **__: groups)
    plan = surrogate.Plan(draws=2, items=ITEMS, slow=1, few=2)
    _, details = surrogate.surrogate(plan, lambda _: None)
    figures.draw_propagation({"surrogate": details}, tmp_path)
    told = (tmp_path / "surrogate.md").read_text("utf-8")

    assert (tmp_path / "surrogate.png").stat().st_size > 10_000
    assert told.startswith("2 draws of 1,500 memories")
    median = details["main"]["auc"]["ours"]["median"]
    assert f"| ours | {median:.3f} [" in told
    for row in ("isolation forest", "eq1 similarity", "eq4 recognition", "ours auc without spread",
                "type unseen in training: II", "filled in poison put right"):  # fmt: skip
        assert f"| {row}" in told
    assert "| 0.94 |" in told
    assert "| 15.6 |" in told


@pytest.fixture
def made(monkeypatch):
    """Have draws take no time; return what was made."""
    made = []

    def quick(world, seed, **how):
        made.append((world, seed, how))
        effects = dict.fromkeys(
            [name for name, _ in surrogate.FIGURES] + list(surrogate.TABLE_1_COLUMNS), 0.5
        )
        names = [*surrogate.TABLE_1, evaluation.PRINTED]
        return {
            "auc": dict.fromkeys(names, 0.9),
            "by_type": dict.fromkeys(world_module.TYPES, 0.8),
            "priority": {"ours_repaired": 0.0, "printed_repaired": 0.0},
            **dict.fromkeys(names, effects),
        }

    monkeypatch.setattr(surrogate, "evaluate", quick)
    monkeypatch.setattr(surrogate, "draw", lambda *how: how)
    monkeypatch.setattr(surrogate, "figures", lambda world, seed: {})
    return made


def test_a_plan_ends_when_its_time_is_over(made):
    """Two draws of each kind are made, and n says so."""
    plan = surrogate.Plan(draws=50, items=600, few=3, minutes=0.0)
    checks, details = surrogate.surrogate(plan, lambda _: None)

    assert checks[0].id == "surrogate_auc"
    assert checks[0].n == 2
    assert {row["auc"]["n"] for row in details["table_2"].values()} == {2}
    assert len(made) == 2 + 2 * (5 + 3 + 4 + 4)


def test_a_run_goes_on_from_the_draws_that_were_kept(made, tmp_path, monkeypatch):
    """None is made twice; a line that was cut short or is of other code is not used."""
    kept = tmp_path / "draws.jsonl"
    plan = surrogate.Plan(draws=4, items=600, slow=0, few=2, minutes=10.0, kept=kept)
    before, _ = surrogate.surrogate(plan, lambda _: None)
    first = len(made)
    again, _ = surrogate.surrogate(replace(plan, minutes=0.0), lambda _: None)

    assert len(made) == first == 4 + 5 * 5 + 2 * (3 + 4 + 4)
    assert again == before
    assert again[0].n == 4
    lines = kept.read_text("utf-8").splitlines()
    kept.write_text("\n".join([*lines[:-1], lines[-1][:40]]), encoding="utf-8")
    surrogate.surrogate(replace(plan, minutes=0.0, draws=2), lambda _: None)
    assert len(made) == first + 1
    monkeypatch.setattr(draws, "code_digest", lambda: "other")
    surrogate.surrogate(replace(plan, minutes=0.0), lambda _: None)
    assert len(made) == first + 1 + 2 + 2 * (5 + 3 + 4 + 4)
