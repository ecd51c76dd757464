"""Protocol modules: one file per wire format, found by walking this package."""
