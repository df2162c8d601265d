"""Words and numbers: what an environment says and what it is told. Needs no torch."""
