"""``guard lab bench propagation``: recorded runs, live agents, the paper's surrogate, cost."""
