"""Load the language model, score phrases and answers, and sample text. No learner and no env is known here."""

import logging

# PEFT imports bitsandbytes where it is installed, which then warns, on some CPUs, of an optional kernel that it lacks.
# Its own code computes the same. Whatever else it says is shown.
logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(
    lambda record: not record.getMessage().startswith("Failed to load CPU gemm_4bit_forward")
)
