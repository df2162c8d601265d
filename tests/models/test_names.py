"""The table of named models: unique names, settings that the policy takes, and the bundled LM as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lmpolicy import Hyperparameters, PolicySettings, models
from lmpolicy.bundled import BUNDLED
from lmpolicy.models.names import similar_name

BUNDLED_NAME = "lmpolicy/bundled"


def test_names_and_hub_ids_are_unique_and_found_in_any_case() -> None:
    known = models.named_models()
    names = [one.name for one in known] + [one.hub_id.lower() for one in known if one.hub_id]
    assert len(set(names)) == len(names)
    for one in known:
        assert one.name == one.name.lower()
        assert models.find(one.name.upper()) is one
        if one.hub_id is not None:
            assert models.find(one.hub_id) is models.find(one.hub_id.upper()) is one
            assert one.name == one.hub_id.split("/")[1].lower()
    assert models.find("somebody/else") is None
    assert models.find("") is None
    with pytest.raises(models.ModelError, match="got an empty text: name one, or leave it out for the bundled LM"):
        models.resolve("")


def test_the_bundled_model_is_an_entry() -> None:
    entry = models.find(None)
    assert [one for one in models.named_models() if one.folder] == [entry] == [models.find(BUNDLED_NAME)]
    assert entry is not None
    assert entry.folder == BUNDLED
    assert entry.context == json.loads((BUNDLED / "config.json").read_text())["max_position_embeddings"]
    assert entry.tested


@pytest.mark.parametrize("model", models.named_models(), ids=lambda one: one.name)
def test_entry(model: models.NamedModel) -> None:
    settings = PolicySettings.of({"model": model.name, **model.settings})
    assert settings.lora == model.settings["lora"]
    assert json.loads(json.dumps(dict(model.settings))) == model.settings
    assert 1024 <= model.context <= 131_072
    assert (model.hub_id is None) == (model.folder is not None)
    assert model.note
    assert "\n" not in model.note
    assert model.revision is None or re.fullmatch("[0-9a-f]{40}", model.revision)
    assert model.digest is None or re.fullmatch("[0-9a-f]{64}", model.digest)


def test_settings_of_the_bundled_model_are_the_named_ones() -> None:
    entry, named = models.find(BUNDLED_NAME), Hyperparameters("CartPole-v1").ppo["policy_kwargs"]
    assert entry is not None
    for setting in ("lora", "score_normalization", "critic_lr_factor"):
        assert entry.settings[setting] == named[setting]


def test_only_what_was_tried_is_called_tested() -> None:
    assert {one.name for one in models.named_models() if one.tested} == {BUNDLED_NAME, "smollm2-135m-instruct"}


def test_package_of_the_real_model_is_the_tested_version() -> None:
    entry = models.find("smollm2-135m-instruct")
    assert entry is not None
    assert entry.package is not None
    constraints = (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()
    assert f"{entry.package.distribution}=={entry.package.version}" in constraints
    assert entry.digest == entry.package.digest


def test_a_misspelt_name_is_recognised() -> None:
    assert similar_name("smollm2-135m-instrct") == "smollm2-135m-instruct"
    assert similar_name("Qwen/Qwen2.5-0.5B-instruc") == "qwen2.5-0.5b-instruct"
    assert similar_name("bert-base-uncased") is None


def test_the_module_comes_with_the_package() -> None:
    import lmpolicy

    assert lmpolicy.models is models


def test_the_guide_lists_all_models() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "models.md").read_text()
    rows = re.findall(r"^\| `(\S+)` \| (?:`(\S+)`|bundled) \| (\d+) \| (yes|no) \| (.*) \|$", guide, re.MULTILINE)
    expected = [
        (one.name, one.hub_id or "", str(one.context), "yes" if one.tested else "no", one.note)
        for one in models.named_models()
    ]
    assert rows == expected
