"""Make tiny language models from random play; the bundled LMs are made by ``python -m lmpolicy.pretraining.build``."""
