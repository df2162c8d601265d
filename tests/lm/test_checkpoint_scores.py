"""A checkpoint whose policy scores phrases otherwise than the one it is loaded into: a warning names the remedy."""

from __future__ import annotations

import logging
from typing import Any

import gymnasium as gym
import pytest

from lmpolicy import LMActorCriticPolicy, TextObservationWrapper


def made(**settings: Any) -> LMActorCriticPolicy:
    """A policy of CartPole, on the bundled LM."""
    env = TextObservationWrapper(gym.make("CartPole-v1"))
    return LMActorCriticPolicy(env.observation_space, env.action_space, lambda _: 0.0, **settings)


@pytest.mark.parametrize(
    ("saved", "told"),
    [
        ({"score_normalization": "sum"}, "score_normalization='sum', and this policy has 'token'"),
        ({"temperature": 2.0}, "temperature=2.0, and this policy has 1.0"),
    ],
)
def test_other_scores_are_told(saved: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture) -> None:
    state = made(**saved).state_dict()
    with caplog.at_level(logging.WARNING, logger="lmpolicy"):
        made().load_state_dict(state)
        (message,) = caplog.messages
        assert told in message
        assert "lmpolicy.load(path)" in message
        caplog.clear()
        made(**saved).load_state_dict(state)
        assert not caplog.messages
