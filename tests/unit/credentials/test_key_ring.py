"""Keys: made once, private and whole; in a ring there is an overlap in which both are good."""

import concurrent.futures
import json
import stat
from types import SimpleNamespace

import pytest

from guard.core.errors import GuardError, InputError
from guard.core.labels import Channel, LabelRecord, LabelSet
from guard.core.model import Integrity
from guard.credentials.key_ring import (
    KeyWatch,
    key_id,
    load_ring,
    load_seal,
    retire,
    ring_path,
    rotate,
)
from guard.credentials.label_key import label_key_path, load_key

NOW = 1_700_000_000.0
WHAT = "label key"
AREA, FIELD = LabelSet("m", ("default",)), b"0" * 12 + b"T"


@pytest.fixture
def path(tmp_path):
    """A key file."""
    return tmp_path / "label.key"


def test_a_key_is_accepted_before_it_is_used_and_until_it_is_retired(path):
    """Each process knows the new key before the first of them seals with it."""
    old = load_ring(path, WHAT).root
    made = rotate(path, WHAT, NOW, 60)
    assert load_ring(path, WHAT).in_use(NOW + 59) == [old, made.key]
    assert load_ring(path, WHAT).in_use(NOW + 60) == [made.key, old]
    assert stat.S_IMODE(ring_path(path).stat().st_mode) == 0o600
    with pytest.raises(InputError, match="rotate first"):
        retire(path, WHAT, made.id, NOW + 61)
    retire(path, WHAT, key_id(old), NOW + 61)
    assert load_ring(path, WHAT).in_use(NOW + 61) == [made.key]
    with pytest.raises(InputError, match="has no key"):
        retire(path, WHAT, key_id(old), NOW + 61)


def test_what_an_earlier_key_sealed_is_good_until_it_is_retired(path):
    """MACs, ciphertexts, lists, signatures and tokens; fingerprints never change."""
    record = LabelRecord(Integrity.TRUSTED, Channel.SAVED, 1, NOW, b"s" * 8, "tool")
    seal = load_seal(path, NOW)
    folding = seal.folding(str.lower)
    before = {
        "mac": seal.sealed(AREA, FIELD, b"body"),
        "text": seal.enciphered(AREA, FIELD, b"text"),
        "record": seal.write(AREA, FIELD, record)[1],
        "signature": seal.signature("p", b"d"),
        "promotion": seal.promotion("t", "c", "L1", "p", 5),
        "mark": seal.fingerprint("x"),
    }

    def good(now):
        assert now.fingerprint("x") == before["mark"]
        return [
            now.opened(AREA, FIELD, before["mac"]) == b"body",
            now.opened_all(AREA, FIELD, [before["mac"]]) == [b"body"],
            now.deciphered(AREA, FIELD, before["text"]) == b"text",
            now.read(AREA, FIELD, before["record"]) == record,
            now.is_signature("p", b"d", before["signature"]),
            now.is_promotion(before["promotion"], "t", "c", "L1", "p", "5"),
        ]

    old = key_id(load_ring(path, WHAT).root)
    made = rotate(path, WHAT, NOW, 60)
    for at in (NOW, NOW + 61):
        seal.rotate(load_ring(path, WHAT).in_use(at))
        assert all(good(seal))
        assert all(good(folding)), "what folds is of the same keys"
    assert seal.sealed(AREA, FIELD, b"body") != before["mac"]
    after = seal.sealed(AREA, FIELD, b"body")
    assert load_seal(path, NOW + 61).opened(AREA, FIELD, after) == b"body"

    retire(path, WHAT, old, NOW + 61)
    seal.rotate(load_ring(path, WHAT).in_use(NOW + 61))
    assert not any(good(seal))
    assert not any(good(folding))
    assert seal.opened(AREA, FIELD, after) == b"body"
    assert made.id == key_id(load_ring(path, WHAT).in_use(NOW + 61)[0])


def test_a_process_takes_over_what_changes_and_nothing_else(path):
    """By the file and by the clock; a ring that is broken leaves the keys as they are."""
    clock = SimpleNamespace(at=NOW)
    load_ring(path, WHAT)
    watch = KeyWatch(path, WHAT, lambda _: None, lambda: clock.at)
    assert watch.look() is None
    made = rotate(path, WHAT, NOW, 60)
    assert watch.look()[1] == made.key
    assert watch.look() is None
    clock.at += 60
    assert watch.look()[0] == made.key
    ring_path(path).write_text("{" * 64, "utf-8")
    with pytest.raises(GuardError, match="cannot be read"):
        watch.look()


@pytest.mark.parametrize(
    ("second", "mode"),
    [({}, 0o644), ({"key": "AAAA"}, 0o600), ({"key": None}, 0o600), (None, 0o600)],
    ids=["readable", "short", "no key", "no list"],
)
def test_a_ring_that_cannot_be_trusted_is_refused(path, second, mode):
    """Others could read it, or it says something else."""
    rotate(path, WHAT, NOW)
    file = ring_path(path)
    document = json.loads(file.read_text("utf-8"))
    keys = document["keys"]
    document["keys"] = 5 if second is None else [keys[0], {**keys[1], **second}]
    file.write_text(json.dumps(document).ljust(80), "utf-8")
    file.chmod(mode)
    with pytest.raises(GuardError):
        load_ring(path, WHAT)


def test_a_missing_key_is_made_private_and_stays(tmp_path):
    """Mode 0600, 32 random bytes, the same on the next start."""
    path = tmp_path / "state" / "label.key"
    key = load_key(path, "label key")
    assert (len(key), path.stat().st_mode & 0o777) == (32, 0o600)
    assert load_key(path, "label key") == key
    assert [p.name for p in path.parent.iterdir()] == ["label.key"]


def test_two_processes_that_start_at_once_use_one_key(path):
    """Whoever loses the race reads the winner's file."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: load_key(path, "label key"), range(32)))
    assert len(keys) == 1


@pytest.mark.parametrize(("mode", "size", "words"), [(0o644, 32, "chmod"), (0o600, 8, "32 bytes")])
def test_a_key_that_is_shared_or_short_is_refused(path, mode, size, words):
    """Neither is a secret."""
    path.write_bytes(bytes(size))
    path.chmod(mode)
    with pytest.raises(GuardError, match=words):
        load_key(path, "label key")


def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    """A named file is used or nothing is."""
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(GuardError, match="cannot be used"):
        load_key(tmp_path / "file" / "label.key", "label key")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home directory with nothing in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return tmp_path


@pytest.mark.parametrize("elsewhere", [False, True], ids=["default", "XDG_STATE_HOME"])
def test_a_key_of_an_earlier_version_is_used_where_it_lies(home, monkeypatch, elsewhere):
    """A new one would turn every label of the deployment into that of nobody."""
    if elsewhere:
        monkeypatch.setenv("XDG_STATE_HOME", str(home / "elsewhere"))
    earlier = home / ".local" / "state" / "agent-egress-guard" / "label.key"
    key = load_key(earlier, "label key")

    assert load_key(label_key_path(), "label key") == key
    assert label_key_path() == earlier
    assert not list(home.rglob("egress-guard"))
