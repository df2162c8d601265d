"""Write the model card of a language model that was made from random play."""

from __future__ import annotations

from typing import Any

from lmpolicy.pretraining.training import Reading


def model_card(model: Any, tokenizer: Any, reading: Reading, loss: float, command: str) -> str:
    """Write a page in Markdown.

    :param model: the trained model.
    :param tokenizer: its tokenizer.
    :param reading: what was read.
    :param loss: mean loss of the last steps, in nats per token.
    :param command: what was typed.
    """
    config = model.config
    return f"""---
library_name: transformers
tags: [lmpolicy, reinforcement-learning]
---

# A small language model of random play

| | |
|---|---|
| architecture | {config.model_type}: {config.num_hidden_layers} layers, hidden size {config.hidden_size}, \
{config.num_attention_heads} heads |
| parameters | {model.num_parameters():,} |
| tokenizer | byte-level BPE of {len(tokenizer):,} tokens; each digit is a token |
| read | {reading.tokens:,} tokens, {reading.documents.total():,} documents |
| loss | {loss:.3f} nats per token, over the last documents |
| command | `{command}` |

It knows the words, the numbers and what follows from an action in the envs below, and nothing else: it is a start for
reinforcement learning in them.

```python
from stable_baselines3 import PPO
from lmpolicy import LMActorCriticPolicy, TextObservationWrapper

model = PPO(LMActorCriticPolicy, TextObservationWrapper(env), policy_kwargs=dict(model="FOLDER"))
```

## What it has read

Every action was drawn uniformly from the legal phrases: no good play is in the text.

{reading_table(reading)}
"""


def reading_table(reading: Reading) -> str:
    """Write a table of what was read.

    :param reading: what was read.
    """
    rows = [
        f"| {source} | {count:,} | {reading.steps[source]:,} |" for source, count in reading.documents.most_common()
    ]
    return "\n".join(["| env | documents | env steps |", "|---|---|---|", *rows])
