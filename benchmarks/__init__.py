"""What lmpolicy is measured with: one package or script per subject, run as ``python -m benchmarks.SUBJECT``."""
