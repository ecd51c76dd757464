"""Enforcement points: proxies, wrappers and the parts that they share."""
