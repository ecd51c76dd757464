"""``guard lab bench propagation``: recorded runs, live agents and cost."""
