"""Tests of the second model: what it says, when it is silent, and that no policy can use it."""

import json

import pytest
from typer.testing import CliRunner

from guard.adapters.onnx import load_models
from guard.cli.explain import explain
from guard.lab.ladder_trial import trial
from guard.lab.provenance_features import FEATURES
from guard.lab.provenance_rows import Example
from guard.lab.send_opinion import FOLDER, MODEL, SendOpinion
from guard.lab.train_provenance import fit, left_out
from guard.shipped import models_directory, policies_directory


def explained(rung):
    """Explain a send to somebody on a rung; return the findings by code."""
    import typer

    app = typer.Typer()
    app.command()(explain)
    document = {
        "provenance": {"a@b.test": rung},
        "call": {
            "tool": "email_send_email",
            "arguments": {"to": ["a@b.test"], "subject": "s", "body": ""},
        },
    }
    default = str(policies_directory() / "default.yaml")
    result = CliRunner().invoke(app, ["-", "-p", default, "--json"], input=json.dumps(document))
    assert result.exit_code in {0, 2}, result.output
    return {finding["code"]: finding for finding in json.loads(result.stdout)["findings"]}


def test_guard_explain_shows_what_the_second_model_thinks():
    """A tainted destination looks more like an attack than one the user named."""
    tainted, named = explained("tainted"), explained("prompted")

    assert tainted["provenance_score"]["score"] > 0.5 > named["provenance_score"]["score"]


def test_the_model_is_not_among_those_of_the_request_path():
    """So no rule of a policy can refer to it, and no decision waits for it."""
    assert MODEL not in load_models(models_directory())
    assert MODEL in load_models(models_directory() / FOLDER)


def test_the_card_says_where_it_is_worse_than_the_ladder():
    """Plainly: a reader of the card must not take it for a gate."""
    card = json.loads((models_directory() / FOLDER / f"{MODEL}.card.json").read_text("utf-8"))
    trials = card["evaluation"]
    unseen = [
        trials["agentdojo"],
        trials["agentdojo, each agent model or suite by a model without it"],
        trials["generated, each kind by a model without it"],
    ]

    assert all(one["model_flagged_at_equal_recall"] > one["ladder_flagged"] for one in unseen)
    assert unseen[-1]["attacks_lost"] > 0.0
    assert "explanation" in card["limits"]


def test_a_model_over_other_features_is_refused():
    """Its scores would mean something else."""

    class Other:
        features = ("x",)

    with pytest.raises(ValueError, match="other features"):
        SendOpinion(Other())


def row(**values):
    """Build a row with some features set."""
    return tuple(float(values.get(name, 0)) for name in FEATURES)


def test_training_finds_what_separates_and_counts_what_it_costs():
    """On sends that one feature separates, the model asks no honest send the ladder asked."""
    sends = [
        Example(row(tainted_count=1, weakest_rung=8), attack=True, asked=True, kind=f"k{n % 2}")
        for n in range(10)
    ] + [
        Example(row(unknown_count=1, weakest_rung=7), attack=False, asked=True, kind=f"k{n % 2}")
        for n in range(10)
    ]

    _, threshold, apart = fit(sends)
    found = trial("here", sends, apart, threshold)

    assert (found.attacks, found.honest) == (10, 10)
    assert (found.ladder_recall, found.ladder_flagged) == (1.0, 1.0)
    assert found.model_flagged_at_equal_recall == 0.0
    assert found.asks_spared == 1.0
    assert found.fewer_flagged_interval == [1.0, 1.0]


def test_what_is_left_out_is_judged_by_a_model_that_has_not_seen_it():
    """A suite whose attacks look like nothing else is not recognised when it is held out."""
    generated = [
        Example(row(tainted_count=n % 2), attack=n % 2 == 1, asked=True, kind="generated")
        for n in range(20)
    ]
    recorded = [
        Example(row(unknown_count=1), attack=suite == "odd", asked=True, kind=f"{suite}/{n}")
        for suite in ("odd", "even")
        for n in range(10)
    ]

    answer = left_out(generated, recorded)

    assert max(answer[:10]) < 0.5 < min(answer[10:])
