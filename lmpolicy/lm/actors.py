"""Make the actor for an action space: one that chooses phrases, or one that writes text."""

from __future__ import annotations

from gymnasium import spaces

from lmpolicy.lm.actor import Actor
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.phrase_actor import PhraseActor
from lmpolicy.lm.settings import PolicySettings, check_tokenizer
from lmpolicy.lm.spread import spread_over_processes
from lmpolicy.lm.text_actor import TextActor
from lmpolicy.text.spaces import TokenSpace


def make_actor(backbone: Backbone, action_space: spaces.Space, settings: PolicySettings) -> Actor:
    """Make the actor for an action space.

    :param backbone: language model with its tokenizer and value head.
    :param action_space: ``Discrete(K)`` for an actor that chooses phrases, :class:`~lmpolicy.TokenSpace` for one that
        writes.
    :param settings: settings of the policy.
    :raises ValueError: if the space was made for another tokenizer, or if an encoder-decoder model was to write; the
        message says what to pass to the wrapper.
    """
    if isinstance(action_space, TokenSpace):
        if backbone.answer_start is not None:
            raise ValueError(
                f"{backbone.name} is an encoder-decoder model, which chooses among phrases but does not write: make "
                'the wrapper with action_mode="score", or take a causal LM for written answers'
            )
        check_tokenizer(action_space, backbone.tokenizer, settings.model)
        actor: Actor = TextActor(backbone, action_space, settings)
    else:
        actor = PhraseActor(backbone, int(action_space.n), settings)  # type: ignore[attr-defined]
    actor.scorer.spread = spread_over_processes(backbone, action_space, settings)
    return actor
