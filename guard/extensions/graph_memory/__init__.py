"""Selection of a graph memory: who wrote its structure, and what the selection is without them.

``selectors`` has one file per selector, found by discovery.  Pure: no I/O, no clock.
"""
