"""Generated agent runs in trace format v1, seeded: evasions, hard negatives, Trojan Hippo flows.

What a run is meant to show stands in its ``labels``, which the guard never reads.  One seed gives
one set, byte for byte; another seed gives other names, domains and wordings of the same kinds.
"""
