"""How well language models learn; see ``python -m benchmarks.learning --help``."""
