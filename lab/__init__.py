"""Offline work: training and evaluation.  Nothing on the request path imports this package."""
