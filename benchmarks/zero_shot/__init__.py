"""What language models know before any training; see ``python -m benchmarks.zero_shot --help``."""
