"""Advantages by comparing episodes with each other: the seeds of groups, and the rollout buffers."""
