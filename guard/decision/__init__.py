"""The decision on one call (hops 3 to 6) and the way back of its result."""
