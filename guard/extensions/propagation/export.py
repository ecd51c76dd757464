"""An incident as evidence: JSON, signed with the guard's key, and STIX 2.1.

Nodes, items, sessions and principals are digests; no text of a memory is exported.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid5

from guard.extensions.propagation.scope import Scope, scope_document

if TYPE_CHECKING:
    from guard.extensions.propagation.graph import Graph
    from guard.extensions.propagation.incident import Incident
    from guard.provenance.seal import Seal

TAGS: Final = {"mitre_atlas": "AML.T0080.000", "owasp_agentic": "ASI06"}
"""Memory poisoning in ATLAS, and memory and context poisoning in OWASP's list for agents."""
PURPOSE: Final = "incident export"
_NAMES: Final = UUID("6f0a1c52-3b7e-4d0e-9a53-7c1d2f4b8e90")
_COLUMNS: Final = (
    "node", "what", "tier", "hops", "r", "item", "store", "tool", "label", "session", "principal",
    "call", "at", "outside",
)  # fmt: skip


def document_of(graph: Graph, incident: Incident, scope: Scope) -> dict[str, Any]:
    """Return timeline, scope, actions and gaps of an incident as JSON values, unsigned."""
    fields = asdict(incident)
    return {
        "kind": "guard.incident",
        "version": 1,
        "tags": TAGS,
        "incident": {name: fields[name] for name in ("id", "selectors", "roots", "note", "state")},
        "timeline": [{"at": _iso(at), "by": by, "what": what} for at, by, what in incident.log],
        "actions": [{**step, "at": _iso(step["at"])} for step in fields["steps"]],
        "scope": scope_document(graph, scope),
        "gaps": scope.unknown,
    }


def as_json(seal: Seal, document: dict[str, Any]) -> str:
    """Return a document with its signature."""
    signature = seal.signature(PURPOSE, _canonical(document))
    return json.dumps({**document, "signature": signature}, indent=2)


def is_signed(seal: Seal, text: str) -> bool:
    """Return whether an exported JSON document is as this guard wrote it."""
    try:
        document = json.loads(text)
        signature = document.pop("signature")
    except (ValueError, KeyError, AttributeError):
        return False
    data = _canonical(document)
    return isinstance(signature, str) and seal.is_signature(PURPOSE, data, signature)


def _canonical(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def as_stix(document: dict[str, Any]) -> str:
    """Return a STIX 2.1 bundle: the incident, the technique, and each item as observed.

    Raises:
        ImportError: the extra ``incidents`` (package ``stix2``) is not installed.
    """
    import stix2

    incident, scope = document["incident"], document["scope"]
    seen = [*scope["items"], *scope["sends"], *scope["asked"]]
    opened = document["timeline"][0]["at"] if document["timeline"] else None
    guard = stix2.Identity(
        id=_name("identity", "guard"), name="agent egress guard", identity_class="system"
    )
    technique = stix2.AttackPattern(
        id=_name("attack-pattern", TAGS["mitre_atlas"]),
        name="AI agent context poisoning: memory",
        external_references=[
            {"source_name": "mitre-atlas", "external_id": TAGS["mitre_atlas"]},
            {"source_name": "owasp-agentic-top-10", "external_id": TAGS["owasp_agentic"]},
        ],
        created_by_ref=guard.id,
    )
    case = stix2.Incident(
        id=_name("incident", incident["id"]),
        name=incident["id"],
        description=incident["note"] or "a poisoned memory item",
        created=opened,
        modified=opened,
        created_by_ref=guard.id,
        labels=[*TAGS.values()],
        allow_custom=True,
    )
    objects: list[Any] = [guard, technique, case]
    objects.append(stix2.Relationship(case, "related-to", technique))
    for row in seen:
        at = _iso(float(row["at"]))
        event = {
            "type": "x-agent-memory-event",
            "spec_version": "2.1",
            "id": _name("x-agent-memory-event", str(row["node"])),
            **{name: row[name] for name in _COLUMNS if name in row and name != "at"},
        }
        objects.append(stix2.parse(event, allow_custom=True))
        observed = stix2.ObservedData(
            id=_name("observed-data", f"{incident['id']}:{row['node']}"),
            first_observed=at,
            last_observed=at,
            number_observed=1,
            object_refs=[event["id"]],
            created_by_ref=guard.id,
            allow_custom=True,
        )
        objects += [observed, stix2.Relationship(observed, "related-to", case)]
    bundle = stix2.Bundle(objects=objects, allow_custom=True)
    return str(bundle.serialize(pretty=True))


def _name(kind: str, what: str) -> str:
    return f"{kind}--{uuid5(_NAMES, f'{kind}:{what}')}"


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
