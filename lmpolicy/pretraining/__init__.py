"""Make small language models from random play in any envs; the bundled LM is one of them."""
