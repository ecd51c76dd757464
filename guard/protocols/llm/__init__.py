"""The APIs of language models."""
