"""A loop of one's own: the user plays, and the unmodified PPO learns from it."""
