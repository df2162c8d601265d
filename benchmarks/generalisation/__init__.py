"""What carries over to other worlds; see ``python -m benchmarks.generalisation --help``."""
