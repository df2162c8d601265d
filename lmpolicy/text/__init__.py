"""Turn observations into prompts, and answers into actions. Needs no torch."""
