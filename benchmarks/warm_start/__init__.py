"""Measure what a warm start from few episodes is worth, and whether PPO keeps it."""
