"""Load the tokenizer of the model that answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmpolicy.models import ModelError, find, resolve


def load_tokenizer(tokenizer: Any) -> Any:
    """Load a tokenizer by its name or folder.

    :param tokenizer: name of :mod:`lmpolicy.models`, hub id, local folder, ``*.gguf`` file, or ``None`` for the
        tokenizer of the bundled LM. A Transformers tokenizer is returned as it is.
    :raises OSError: if the tokenizer cannot be loaded; the message says which one to name.
    :raises TypeError: if the argument is something else.
    """
    if tokenizer is None or isinstance(tokenizer, str | Path):
        from transformers import AutoTokenizer  # here, because it takes a second and action_mode="score" needs none

        try:
            known = find(tokenizer)
            # The revision is the one with which the policy loads the model of this name.
            pinned = {} if known is None or known.revision is None else {"revision": known.revision}
            return AutoTokenizer.from_pretrained(resolve(tokenizer), trust_remote_code=False, **pinned)
        except ModelError:
            raise
        except Exception as error:  # OSError, ValueError; a bare Exception for a broken file
            raise OSError(
                f"the tokenizer {tokenizer!r} could not be loaded: {error}\nGive tokenizer= the hub id or local folder "
                "of the policy's model"
            ) from error
    if not hasattr(tokenizer, "get_vocab") or not hasattr(tokenizer, "decode"):
        raise TypeError(
            "tokenizer must be a hub id, a local folder, a Transformers tokenizer or None (the bundled LM's), got "
            f"{type(tokenizer).__name__}"
        )
    return tokenizer
