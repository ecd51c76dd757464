"""Seeded attempts to tamper with an audit log, each of which the verifier has to find."""

import json
import random

from guard.telemetry.audit_log import AuditLogFile
from guard.telemetry.audit_tree import CHECKPOINTS, FIELD_NUMBER, Signer, leaf_hash, verify

KINDS = (
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
)
UNTOUCHED = ""
_LINES = 40
_SEED = b"audit tampering, a key of no deployment"


def is_found(directory, kind, seed):
    """Return whether ``guard audit verify`` finds what was done to a log."""
    rng = random.Random(f"{seed}:{kind}")
    path, anchors = _written(directory, rng)
    kept = kind != UNTOUCHED and _tampered(path, kind, rng)
    return not verify([path], Signer(_SEED).verifier, anchors if kept else ()).is_sound


def _written(place, rng):
    """Write a log as two processes do, one after the other; return it with its anchors."""
    path, anchors = place / "audit.jsonl", []
    for process in range(2):
        log = AuditLogFile(path, signer=Signer(_SEED), now=lambda: 1.0)
        for number in range(_LINES):
            log.event("test", {"process": process, "value": rng.random(), "number": number})
            if rng.random() < 0.2:
                log.checkpoint()
        # Something is written, so there is a last checkpoint.
        log.event("test", {"process": process})
        anchors.append(str(log.checkpoint()))
        log.close()
    return path, anchors


def _tampered(path, kind, rng):
    """Tamper with a log; return whether its verifier has an anchor."""
    lines = path.read_bytes().splitlines()
    notes = path.with_name(path.name + CHECKPOINTS)
    place = rng.randrange(len(lines) - 1)
    entry = json.loads(lines[place])
    match kind:
        case "change":
            entry["value"] = rng.random()
            lines[place] = json.dumps(entry, separators=(",", ":")).encode()
        case "remove":
            del lines[place]
        case "swap":
            lines[place], lines[place + 1] = lines[place + 1], lines[place]
        case "insert":
            lines.insert(place, json.dumps(entry | {"value": 0}).encode())
        case "cut tail":
            lines = lines[: -rng.randrange(1, 20)]
        case "renumber":
            lines = _renumbered(lines, place)
        case "roll back":
            # Log and checkpoints together, as from a backup: only an anchor tells.
            keep = notes.read_bytes().splitlines()
            notes.write_bytes(b"\n".join(keep[: len(keep) // 2]) + b"\n")
            lines = _up_to(lines, keep[len(keep) // 2 - 1])
        case "erase":
            leaf = leaf_hash(lines[place]).hex()
            erased = {k: entry[k] for k in ("log", "n")} | {"event": "guard.erased", "leaf": leaf}
            lines[place] = json.dumps(erased).encode()
        case "take a process away":
            first = json.loads(lines[0])["log"]
            lines = [line for line in lines if json.loads(line)["log"] != first]
            keep = [n for n in notes.read_bytes().splitlines() if first.encode() not in n]
            notes.write_bytes(b"\n".join(keep) + b"\n")
        case _:
            forged = Signer(b"the key of somebody else entirely, 32+")
            _change_and_sign(lines, place, forged, notes)
    path.write_bytes(b"\n".join(lines) + b"\n")
    return kind == "roll back"


def _renumbered(lines, place):
    """Take a line away and close the gap in the numbers."""
    taken = json.loads(lines[place])
    rest = []
    for line in [*lines[:place], *lines[place + 1 :]]:
        entry = json.loads(line)
        if entry["log"] == taken["log"] and entry[FIELD_NUMBER] > taken[FIELD_NUMBER]:
            entry[FIELD_NUMBER] -= 1
        rest.append(json.dumps(entry, separators=(",", ":")).encode())
    return rest


def _up_to(lines, note):
    """Return the lines that a checkpoint covers, and those of processes before it."""
    origin, size = json.loads(note)["note"].split("\n")[:2]
    log = origin.rpartition("/")[2]
    kept = []
    for line in lines:
        entry = json.loads(line)
        kept.append(line)
        if entry["log"] == log and entry[FIELD_NUMBER] == int(size) - 1:
            break
    return kept


def _change_and_sign(lines, place, signer, notes):
    """Change a line, and write the checkpoints anew with another key."""
    entry = json.loads(lines[place])
    lines[place] = json.dumps(entry | {"value": 0}).encode()
    body = json.loads(notes.read_bytes().splitlines()[-1])["note"]
    checkpoint = Signer(_SEED).verifier.opened(body)
    if checkpoint is not None:
        notes.write_text(json.dumps({"note": signer.note(checkpoint)}) + "\n", encoding="utf-8")
