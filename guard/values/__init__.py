"""Values: kinds of destinations, canonical forms, the decoder, finding values.  Pure: no I/O."""
