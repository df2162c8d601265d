"""How to train on an env: named settings, and the names that people type."""
