"""Commands of ``guard lab``, which the guard's command line loads by entry point."""

from typing import Final

COMMANDS: Final = {
    "bench": ("bench:app", "Measure speed, side by side with what the guard replaces."),
    "eval": ("eval:app", "Measure how well the guard decides."),
    "train": ("train:train", "Fit a classifier on recorded runs."),
}
"""``module:attribute`` in this package by command, with a line of help."""
