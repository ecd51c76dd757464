"""What a policy declares to make no difference between receivers, and nothing else, is folded."""

import pickle

import pytest

from guard.core.labels import LabelSet
from guard.provenance.seal import KEY_BYTES, Seal
from guard.values.folds import Folds


@pytest.mark.parametrize(
    ("folds", "value", "expected"),
    [
        ([], "mail:a+b@x.test", "mail:a+b@x.test"),
        (["plus_tags"], "mail:a+b@x.test", "mail:a@x.test"),
        (["scheme"], "mail:a+b@x.test", "mail:a+b@x.test"),
        (["scheme"], "url:http://x.test/a", "url:https://x.test/a"),
        (["scheme"], "url:ftp://x.test/a", "url:ftp://x.test/a"),
        (["query:page"], "url:https://x.test/a?page=2&id=7", "url:https://x.test/a?id=7"),
        (["query:page"], "url:https://x.test/a?page=2", "url:https://x.test/a"),
        (["query:page"], "url:https://x.test/a?pages=2", "url:https://x.test/a?pages=2"),
        (["query:page"], "handle:a?page=2", "handle:a?page=2"),
    ],
)
def test_a_value_is_folded_as_declared(folds, value, expected):
    """Everything else stays as it is."""
    assert Folds.parse(folds)(value) == expected


@pytest.mark.parametrize("text", ["tags", "query:", "query:a b", "Scheme"])
def test_what_is_no_fold_is_refused(text):
    """With the forms that there are."""
    with pytest.raises(ValueError, match="plus_tags"):
        Folds.parse([text])


def test_a_folding_seal_knows_one_receiver_by_its_spellings():
    """Without the fold it knows two; the records of both are under one key."""
    seal, folds = Seal(bytes(KEY_BYTES)), Folds.parse(["plus_tags"])
    folding, area = pickle.loads(pickle.dumps(seal.folding(folds))), LabelSet("memory", ("t",))
    tagged, plain = "mail:a+b@x.test", "mail:a@x.test"

    assert folding.fingerprint(tagged) == seal.fingerprint(plain) != seal.fingerprint(tagged)
    assert (seal.folding(Folds.parse(["plus_tags"])), seal.folding(None)) == (
        seal.folding(folds),
        seal,
    )
    assert folding.opened(area, b"f", seal.sealed(area, b"f", b"body")) == b"body"
