"""Show episodes and runs: as files, as tables in a notebook, and as one HTML page."""
