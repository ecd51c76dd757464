"""Labels of values: intake, look-up, the attestation ladder, lineage.  Pure: no I/O."""
