"""Composition root: settings to parts, workers, supervision, reload, checks."""
