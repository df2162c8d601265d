"""What a real language model is worth; see ``python -m benchmarks.real_models --help``."""
