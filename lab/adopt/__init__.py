"""The cost of adopting the guard: set-up, and ``guard init`` on real servers and honest work."""
