"""The decision core.  Pure: no I/O, no clock, no randomness, no logging.

Everything here is a frozen value or a function of its arguments, so that a verdict can be
replayed, tested by properties and explained long after the call it was given for.
"""

VERSION = "0.2.0"
"""Version of the package; ``guard.__version__`` outside."""
