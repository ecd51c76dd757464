"""Commands of ``guard lab``, which the guard's command line loads by entry point."""

from typing import Final

BENCHES: Final = {
    "proxy": (
        "bench:proxy",
        "Requests per second against stock mitmdump, decision times, growth, memory, round trips.",
    ),
    "provenance": (
        "bench:provenance",
        "Decision times with many labelled values, growth, bytes per value, the ratio.",
    ),
    "soak": (
        "bench:soak",
        "Measure growth of memory, descriptors and times while sessions and policies change.",
    ),
    "peers": (
        "bench:peers",
        "Other gateways of MCP beside the guard: requests per second, latency, what each inspects.",
    ),
    "overload": (
        "bench:overload",
        "Three times as many calls as the guard can judge; large messages beside small ones.",
    ),
    "write-path": (
        "bench:write_path",
        "Memory writes: five attacks, crashes, races, drift, cost.",
    ),
    "propagation": (
        "bench:propagation",
        "Measure how items spread: recorded runs, three agents, committed writes, cost.",
    ),
    "chaos": (
        "bench:chaos",
        "Kill, stop, cut off, slow down and fill up parts while agents work; check what was seen.",
    ),
    "transparency": (
        "bench:transparency",
        "The same MCP scenarios directly and through the guard: how many the client sees alike.",
    ),
    "refusals": (
        "bench:refusals",
        "Count the real clients that hand their models the reason for a refusal, and the remedy.",
    ),
    "selection": (
        "bench:selection",
        "Attacks on a graph memory's selection, the defences, and what a replay costs.",
    ),
    "adopt": (
        "bench:adopt",
        "The first hour: what `guard init` makes of real servers, commands to a guard that blocks.",
    ),
}

COMMANDS: Final = {
    "bench": (BENCHES, "Measure the guard on this machine, side by side with what it replaces."),
    "eval": ("eval:app", "Measure how well the guard decides."),
    "train": (
        {
            "runs": ("train:train", "Fit a classifier on recorded runs; the default."),
            "detector": ("train:train_detector", "Fit a detector of instructions."),
            "actions": (
                "train:compare_actions",
                "Compare trained readers of requested actions with the vocabulary.",
            ),
        },
        "Fit a classifier: on recorded runs, or on texts.",
    ),
}
"""``module:attribute`` in this package by command, with a line of help."""
