"""The audit log is a tree whose checkpoints tell whatever was done to it afterwards."""

import csv
import hashlib
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core.errors import InputError
from guard.telemetry.audit_export import COLUMNS, as_csv_row, as_ocsf, as_otlp
from guard.telemetry.audit_log import AuditLogFile
from guard.telemetry.audit_tree import (
    CHECKPOINTS,
    EVENT_ERASURE,
    Checkpoint,
    MerkleTree,
    Signer,
    Verifier,
    erase,
    leaf_hash,
    node_hash,
    verify,
)

SIGNER = Signer(b"s" * 32)


def reference_root(leaves):
    """Return the Merkle tree hash by its definition in RFC 6962, section 2.1."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaf_hash(leaves[0])
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return node_hash(reference_root(leaves[:half]), reference_root(leaves[half:]))


@given(st.lists(st.binary(max_size=4), max_size=70))
def test_the_tree_is_that_of_the_rfc(leaves):
    """Appended leaf by leaf it hashes to what the definition says."""
    tree = MerkleTree()
    for leaf in leaves:
        tree.append(leaf_hash(leaf))

    assert tree.root() == reference_root(leaves)
    assert len(tree.subtrees) == tree.size.bit_count()


def test_a_checkpoint_is_a_signed_note():
    """Its text is that of C2SP, and whoever has the verifier key can check it."""
    checkpoint = Checkpoint("ab12", 7, b"r" * 32)
    note = SIGNER.note(checkpoint)
    body, signatures = note.split("\n\n")

    assert body.splitlines()[:2] == ["egress-guard-audit/ab12", "7"]
    assert signatures.startswith("\u2014 egress-guard-audit ")
    assert Verifier.parse(SIGNER.verifier.text).opened(note) == checkpoint
    assert SIGNER.verifier.opened(note.replace("\n7\n", "\n8\n")) is None
    assert Signer(b"x" * 32).verifier.opened(note) is None
    assert SIGNER.verifier.opened("nonsense") is None
    with pytest.raises(InputError):
        Verifier.parse("nonsense")


UNTOUCHED = "untouched"


def edited(kind, rng, entries):
    """Change the lines of a log in one way."""
    place = rng.randrange(len(entries) - 1)
    entry = entries[place]
    after = [one for one in entries[place:] if one["log"] == entry["log"]]
    match kind:
        case "change" | "forge a checkpoint":
            entry["value"] = rng.random()
        case "remove" | "renumber":
            del entries[place]
            for one in after:
                one["n"] -= kind == "renumber"
        case "swap":
            entries[place : place + 2] = entries[place + 1], entry
        case "insert":
            entries.insert(place, entry | {"value": 0})
        case "cut tail":
            del entries[-rng.randrange(1, 20) :]
        case "erase":
            leaf = leaf_hash(dumped(entry)).hex()
            kept = {"log": entry["log"], "n": entry["n"]}
            entries[place] = kept | {"event": "guard.erased", "leaf": leaf}


def tampered(kind, rng, entries, notes):
    """Return the lines and the checkpoints of a log of two processes after one attempt."""
    edited(kind, rng, entries)
    if kind == "roll back":
        # Log and checkpoints together, as from a backup: only an anchor tells.
        notes = notes[: len(notes) // 2]
        origin, size = notes[-1]["note"].split("\n")[:2]
        last = (origin.rpartition("/")[2], int(size) - 1)
        entries = entries[: [(one["log"], one["n"]) for one in entries].index(last) + 1]
    elif kind == "take a process away":
        first = entries[0]["log"]
        entries = [one for one in entries if one["log"] != first]
        notes = [one for one in notes if first not in one["note"]]
    elif kind == "forge a checkpoint":
        checkpoint = SIGNER.verifier.opened(notes[-1]["note"])
        notes = [{"note": Signer(b"x" * 32).note(checkpoint)}]
    return entries, notes


def dumped(entry):
    """Return a line as the log writes it."""
    return json.dumps(entry, separators=(",", ":")).encode()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "kind",
    [
        UNTOUCHED,
        "change",
        "remove",
        "swap",
        "insert",
        "cut tail",
        "renumber",
        "roll back",
        "erase",
        "take a process away",
        "forge a checkpoint",
    ],
)
def test_tampering_is_found(tmp_path, kind, seed):
    """Of each kind a few, chosen from a seed; an untouched log of two processes is sound."""
    rng, path, anchors = random.Random(f"{seed}:{kind}"), tmp_path / "audit.jsonl", []
    for process in range(2):
        log = AuditLogFile(path, signer=SIGNER, now=lambda: 1.0)
        for number in range(40):
            log.event("test", {"process": process, "value": rng.random(), "number": number})
            if rng.random() < 0.2:
                log.checkpoint()
        # Something is written, so there is a last checkpoint.
        log.event("test", {"process": process})
        anchors.append(str(log.checkpoint()))
        log.close()
    files = (path, path.with_name(path.name + CHECKPOINTS))
    found = [[json.loads(line) for line in one.read_bytes().splitlines()] for one in files]
    before = path.read_bytes()
    for file, lines in zip(files, tampered(kind, rng, *found), strict=True):
        file.write_bytes(b"".join(dumped(one) + b"\n" for one in lines))

    assert (path.read_bytes() == before) is (kind == UNTOUCHED)
    report = verify([path], SIGNER.verifier, anchors if kind == "roll back" else ())
    assert report.is_sound is (kind == UNTOUCHED)


def test_rotation_leaves_no_gap(tmp_path):
    """Both files verify together; the later one alone says where it begins."""
    path, earlier = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    log = AuditLogFile(path, signer=SIGNER)
    for number in range(10):
        if number == 5:
            path.rename(earlier)
            log.reopen()
        log.event("e", {"number": number})
    log.close()

    for files, found in (([earlier, path], (0, 11, 11)), ([path], (5, 6, 11))):
        report = verify(files, SIGNER.verifier)
        [part] = report.logs.values()
        assert report.is_sound
        assert (part.first, part.lines, part.signed) == found


ENTRY = {
    "event": "guard.decision",
    "at": "2026-01-02T03:04:05.678+00:00",
    "decision_id": "d1",
    "tool": "=cmd()",
    "principal": "alice",
    "enforced": "block",
    "action": "block",
    "reasons": [{"code": "provenance_tainted"}],
    "decided_by": ["r1"],
}


def test_exports_say_the_same():
    """What left or did not, in the words of each format."""
    row = as_csv_row(ENTRY)
    event = as_ocsf(ENTRY)
    record = as_otlp(ENTRY)

    assert set(row) == set(COLUMNS)
    assert row["tool"] == "'=cmd()"
    assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"]
    assert (event["disposition_id"], event["time"]) == (2, 1767323045678)
    assert record["timeUnixNano"] == "1767323045678000000"
    assert {"key": "gen_ai.tool.name", "value": {"stringValue": "=cmd()"}} in record["attributes"]
    json.dumps([event, record])
    assert next(csv.reader([",".join(row.values())]))


def test_a_person_can_be_erased_and_the_tree_verifies(tmp_path):
    """The line keeps its place, the erasure is on record, and without that it is tampering."""
    path = tmp_path / "audit.jsonl"
    log = AuditLogFile(path, signer=SIGNER)
    for number in range(10):
        who = "alice" if number % 3 else "bob"
        log.event("e", {"principal": who, "padding": "x" * 200, "number": number})
    log.checkpoint()

    lines = erase(path, lambda fields: fields.get("principal") == "alice")
    unsaid = verify([path], SIGNER.verifier)
    log.event(EVENT_ERASURE, {"reason": "asked", "lines": [list(pair) for pair in lines]})
    log.close()
    said = verify([path], SIGNER.verifier)

    assert len(lines) == 6
    assert "alice" not in path.read_text()
    assert not unsaid.is_sound
    assert said.is_sound
    assert [one.erased for one in said.logs.values()] == [6]
