"""The bundled LM: a small language model that makes the quick start and the tests work without a network."""
