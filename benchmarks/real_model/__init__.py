"""What a real language model learns; see ``python -m benchmarks.real_model --help``."""
