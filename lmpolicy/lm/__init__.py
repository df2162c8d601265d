"""Load the language model, score phrases and answers, and sample text. No learner and no env is known here."""
