"""``guard lab bench selection``: attacks on a graph memory's structure, and defences."""
