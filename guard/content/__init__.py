"""Reading text: decodings, secrets, instructions to a model, shell text.  Pure: no I/O."""
