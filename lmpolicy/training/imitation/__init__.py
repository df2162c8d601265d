"""Demonstrations and one's own good episodes: kept, played, encoded, and learnt from."""
