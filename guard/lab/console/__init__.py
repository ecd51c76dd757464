"""Measurements of the console: hostile texts, a real browser, a long log, the feed."""
