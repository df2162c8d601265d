"""The language model: loading, scoring, sampling. Knows no learner and no environment."""
