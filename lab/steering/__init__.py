"""Training of the reader of steering text: generated orders, honest documentation, the fit."""
