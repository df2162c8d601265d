"""What prompts and phrases become before a model reads them: how much room they take, and how long they may be."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from helpers.lm_tools import SHARED, encode, make_policy
from helpers.written_answers import writing_policy

from lmpolicy.lm.queries import ARRAY
from lmpolicy.text.prompt import CUE


def test_what_an_array_takes_besides_its_numbers() -> None:
    assert sys.getsizeof(np.empty(0)) == ARRAY


def test_a_prompt_and_its_longest_phrase_may_fill_the_context(llama: str) -> None:
    policy, one = make_policy(llama), SHARED[0]
    renderer = policy.backbone.renderer
    longest = len(renderer.prompt_ids([one])[0]) + max(len(renderer.action_ids(action)) for action in one.actions)
    policy.backbone.context_length = longest
    policy.predict_values(encode([one]))
    policy = make_policy(llama)
    policy.backbone.context_length = longest - 1
    with pytest.raises(ValueError, match=f"a prompt of {longest} tokens, but .* reads at most {longest - 1}"):
        policy.predict_values(encode([one]))


def test_a_prompt_leaves_room_for_the_phrase_behind_its_answer(llama: str) -> None:
    policy, one = writing_policy(llama, n_phrases=4), SHARED[0]
    renderer = policy.backbone.renderer
    behind = len(renderer.text_ids(f"\n{CUE} ")) + max(len(renderer.text_ids(action)) for action in one.actions)
    room = 1024 - len(renderer.prompt_ids([one])[0]) - behind
    writing_policy(llama, n_phrases=4, max_new_tokens=room).predict_values(encode([one]))
    with pytest.raises(ValueError, match="prompt and answer take up to 1025 tokens"):
        writing_policy(llama, n_phrases=4, max_new_tokens=room + 1).predict_values(encode([one]))
