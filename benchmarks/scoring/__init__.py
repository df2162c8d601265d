"""How fast action phrases are scored; see ``python -m benchmarks.scoring --help``."""
