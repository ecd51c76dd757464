"""Metrics, audit log, recordings and spans."""
