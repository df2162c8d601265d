"""What helps the learner of Stable-Baselines3: named settings, callbacks, shaping, several environments."""
