"""Share code between benchmarks."""
