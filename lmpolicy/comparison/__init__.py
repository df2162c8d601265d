"""Compare language models with classic learners on one env; see :func:`lmpolicy.compare`."""
