"""The processes of a guard: supervised children, and the note of one that runs."""
