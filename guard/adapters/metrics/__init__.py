"""Prometheus metrics: families, closed label sets, tallies."""
