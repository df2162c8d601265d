"""Compare PPO with advantages from groups of episodes and from equal prompts."""
