"""Write a folder about a trained policy, push it to the Hugging Face hub, and load what others pushed."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from peft import PeftModel
from stable_baselines3 import PPO
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.exporting import whole_folder
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.report.episodes import FILE as EPISODES
from lmpolicy.report.episodes import Episodes
from lmpolicy.report.page import write_report
from lmpolicy.report.pictures import animated_png, pixels_of
from lmpolicy.report.recording import record_episodes, single_env
from lmpolicy.sharing.card import Played, card, public_name
from lmpolicy.sharing.publishing import save_for_others
from lmpolicy.training.checkpoints.safe_loading import load
from lmpolicy.training.imitation.recorded import wrapper_in
from lmpolicy.wrapper import TextObservationWrapper

RESULTS = "results.json"
CHECKPOINT = "model.zip"
NEEDED = ("README.md", CHECKPOINT, RESULTS)
REPO_ID = re.compile(r"(?!.*(--|\.\.))[A-Za-z0-9_][\w.-]*(?<![.-])/[A-Za-z0-9_][\w.-]*(?<![.-])", re.ASCII)
MISSING = 'the hub needs a package: pip install "lmpolicy[hub]"'
MAX_FRAMES = 300
"""Largest number of pictures in the replay."""


def package_for_hub(
    model: OnPolicyAlgorithm,
    env: gym.Env | VecEnv,
    folder: str | Path,
    repo_id: str,
    *,
    episodes: int = 10,
    deterministic: bool = True,
    seed: int | None = 0,
    run: str | Path | None = None,
    overwrite: bool = False,
) -> Path:
    """Measure a trained policy, and write a folder about it for the Hugging Face hub.

    Nothing is sent: look at the folder, then push it with :func:`~lmpolicy.push_to_hub`. It holds

    - ``model.zip``: the checkpoint. It names the base model, and has no weight of it. Folders of this machine are left
      out: those of the log, of the base model and of adapters. Of a base model in a folder, the name stays; others load
      it with ``model=``.
    - ``adapter``: the adapter as a PEFT folder, if there is one.
    - ``README.md``: the model card with the mean return in the form that leaderboards read, how to load the model, the
      first prompt with the probabilities, and how it was trained.
    - ``report.html`` and ``episodes.jsonl``: the episodes, and with ``run`` the curves of the training.
    - ``replay.png``: the first episode as the env draws it, moving, if the env was made with
      ``render_mode="rgb_array"``.
    - ``results.json``: the numbers.

    Example:
        >>> import lmpolicy
        >>> env = lmpolicy.TextObservationWrapper(gym.make("CartPole-v1", render_mode="rgb_array"))  # doctest: +SKIP
        >>> lmpolicy.package_for_hub(model, env, "hub/cartpole", "me/ppo-CartPole-v1")  # doctest: +SKIP
        PosixPath('hub/cartpole')
        >>> lmpolicy.push_to_hub("hub/cartpole", private=True)  # doctest: +SKIP

    :param model: PPO or A2C with a language model as its policy.
    :param env: the env to measure it in: a :class:`~lmpolicy.TextObservationWrapper`, wrapped or not, or a
        ``DummyVecEnv`` of one, such as ``settings.make_env(n_envs=1, training=False)``.
    :param folder: folder to write. It appears when all of it is written.
    :param repo_id: name of the repository on the hub, ``"user/name"``.
    :param episodes: number of episodes to measure.
    :param deterministic: whether the most likely actions are taken instead of sampled ones.
    :param seed: seed of the first episode; the others have the seeds after it.
    :param run: folder of the training's log, see :func:`~lmpolicy.write_report`. ``None``: the report has no curves.
    :param overwrite: whether a folder that this function wrote before is replaced.
    :return: the folder.
    :raises TypeError: if the model is no learner with a language model.
    :raises ValueError: if the name is none for the hub.
    :raises FileExistsError: if the folder holds anything.
    """
    backbone = _backbone(model)
    _check_name(repo_id)
    if run is not None and not Path(run).exists():
        raise FileNotFoundError(f"{run} is not there: name the folder of the training's log, or leave run= out")
    folder, words = Path(folder), wrapper_in(single_env(env))
    with whole_folder(folder, overwrite, known_by=(RESULTS,)) as draft:
        found = record_episodes(model, env, episodes, draft / EPISODES, deterministic=deterministic, seed=seed)
        spec = words.env.spec
        name = spec.id if spec else type(words.unwrapped).__name__
        own, outer = _env_arguments(spec), _wrapper_arguments(words)
        played = Played(name, own, outer, found.returns, deterministic, found[0])
        save_for_others(model, draft / CHECKPOINT)
        _write_adapter(model, backbone, draft / "adapter")
        _write_replay(found, words.env, draft / "replay.png")
        shown: dict[str, Any] = {} if run is None else {"training": run}
        write_report({**shown, "measured": found}, draft / "report.html", title=repo_id)
        facts = _facts(model, backbone)
        facts |= {"words": type(words.task).__name__}
        facts |= {name: json.dumps(one, default=repr) for name, one in (("env", own), ("wrapper", outer)) if one}
        numbers = {"repo_id": repo_id, "env_id": played.env_id, "mean_reward": played.mean, "std_reward": played.spread}
        numbers |= {"n_eval_episodes": len(found), "is_deterministic": deterministic, "seed": seed, **facts}
        (draft / RESULTS).write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
        files = sorted(one.name for one in draft.iterdir())
        page = card(repo_id, facts, played, backbone.settings.model, files)
        (draft / "README.md").write_text(page, encoding="utf-8")
    return folder


def push_to_hub(
    folder: str | Path,
    *,
    private: bool = False,
    token: str | bool | None = None,
    revision: str | None = None,
    message: str = "Add a policy of lmpolicy",
) -> str:
    """Push a folder that :func:`~lmpolicy.package_for_hub` wrote to the Hugging Face hub.

    The repository is made if it does not exist. Its name is in the folder.

    :param folder: folder to push, as it is.
    :param private: whether a repository that is made is private.
    :param token: access token of the hub. ``None``: that of ``hf auth login`` or the environment variable ``HF_TOKEN``.
    :param revision: branch to push to. Default: the main one.
    :param message: message of the commit.
    :return: address of the commit.
    :raises FileNotFoundError: if the folder lacks one of its files; the message says how to write it.
    :raises ImportError: if ``huggingface_hub`` is not installed; the message says how to install it.
    """
    folder = Path(folder)
    missing = [name for name in NEEDED if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{folder} has no {' and no '.join(missing)}: write it with "
            'lmpolicy.package_for_hub(model, env, folder, "user/name")'
        )
    hub = _hub()
    repo_id = json.loads((folder / RESULTS).read_text(encoding="utf-8"))["repo_id"]
    api = hub.HfApi(token=token)
    api.create_repo(repo_id=repo_id, repo_type="model", private=private, exist_ok=True)
    commit = api.upload_folder(
        repo_id=repo_id,
        repo_type="model",
        folder_path=folder,
        revision=revision,
        commit_message=message,
        ignore_patterns=[".*"],
    )
    return str(commit.commit_url)


def load_from_hub(
    repo_id: str,
    env: Any = None,
    algorithm: type[OnPolicyAlgorithm] = PPO,
    *,
    filename: str = CHECKPOINT,
    revision: str | None = None,
    token: str | bool | None = None,
    **arguments: Any,
) -> OnPolicyAlgorithm:
    """Load a trained policy from the Hugging Face hub, without running anything that is in its file.

    It is :func:`lmpolicy.load` of a file that is downloaded once and kept in the cache of the hub.

    Example:
        >>> import lmpolicy
        >>> model = lmpolicy.load_from_hub("me/ppo-CartPole-v1", env)  # doctest: +SKIP

    :param repo_id: name of the repository, ``"user/name"``.
    :param env: env to train on. ``None``: the model can predict.
    :param algorithm: learner that wrote the checkpoint.
    :param filename: name of the checkpoint in the repository. Default: that of :func:`~lmpolicy.package_for_hub`.
    :param revision: branch, tag or commit. A commit is always the same file.
    :param token: access token of the hub, for private repositories, see :func:`~lmpolicy.push_to_hub`.
    :param arguments: further arguments of :func:`lmpolicy.load`, for instance ``model`` or ``device``.
    :return: the learner.
    :raises FileNotFoundError: if the repository has no such file; the message says how to name another one.
    :raises ImportError: if ``huggingface_hub`` is not installed; the message says how to install it.
    :raises ValueError: if ``repo_id`` is no name of a repository, or as for :func:`lmpolicy.load`.
    """
    _check_name(repo_id)
    hub = _hub()
    try:
        path = hub.hf_hub_download(repo_id, filename, revision=revision, token=token)
    except hub.errors.RemoteEntryNotFoundError as error:
        raise FileNotFoundError(
            f"{repo_id} has no {filename}: look at its files on the hub, and name the checkpoint with filename=..."
        ) from error
    return load(path, env, algorithm, **arguments)


def _hub() -> Any:
    """Import the client of the hub."""
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ImportError(f"{error}; {MISSING}") from error


def _check_name(repo_id: str) -> None:
    """Refuse a name that the hub would refuse."""
    if not isinstance(repo_id, str) or not REPO_ID.fullmatch(repo_id):
        raise ValueError(f'name the repository as "user/name", in letters, digits, "-", "_" and "."; got {repo_id!r}')


def _backbone(model: Any) -> Backbone:
    """Return the language model of a learner."""
    if not isinstance(model, OnPolicyAlgorithm) or not isinstance(model.policy, LMActorCriticPolicy):
        raise TypeError(
            "pass the learner, PPO or A2C with LMActorCriticPolicy: model = PPO(...) or lmpolicy.load(...); got "
            f"{type(model).__name__}"
        )
    return model.policy.backbone


def _wrapper_arguments(words: TextObservationWrapper) -> dict[str, Any]:
    """Return the arguments of a wrapper that are others than by default, but for what a reader makes for himself."""
    usual = inspect.signature(TextObservationWrapper).parameters
    others = ("task", "render_mode", "training", "tokenizer")
    return {
        name: value
        for name, value in words._saved_kwargs.items()
        if name not in others and value != usual[name].default
    }


def _env_arguments(spec: EnvSpec | None) -> dict[str, Any]:
    """Return the arguments of ``gymnasium.make`` that are others than an env is registered with.

    :param spec: of the env that was made; ``None`` if it was made without an id.
    """
    registered = None if spec is None else gym.registry.get(spec.id)
    if spec is None or registered is None:
        return {}
    own = {name: value for name, value in spec.kwargs.items() if registered.kwargs.get(name) != value}
    if spec.max_episode_steps != registered.max_episode_steps:
        own["max_episode_steps"] = spec.max_episode_steps
    return {name: value for name, value in own.items() if name != "render_mode"}


def _facts(model: OnPolicyAlgorithm, backbone: Backbone) -> dict[str, Any]:
    """Return what is known about the training."""
    lora = backbone.lora
    versions = {name: importlib.import_module(name).__version__ for name in ("lmpolicy", "stable_baselines3")}
    return {
        "learner": type(model).__name__,
        "env steps": model.num_timesteps,
        "base model": public_name(backbone.settings.model),
        "fingerprint of the base weights": backbone.fingerprint.weights,
        "LoRA": "none: all weights were trained" if lora is None else json.dumps(lora, sort_keys=True, default=str),
        "envs side by side": model.n_envs,
        "n_steps": model.n_steps,
        "gamma": model.gamma,
        "gae_lambda": model.gae_lambda,
        **versions,
    }


def _write_adapter(model: OnPolicyAlgorithm, backbone: Backbone, folder: Path) -> None:
    """Write the adapter, if there is one, without folders of this machine."""
    if not isinstance(backbone.lm, PeftModel):
        return
    model.policy.save_adapter(folder)  # type: ignore[operator]
    (folder / "README.md").unlink(missing_ok=True)  # an empty form of PEFT, which names the folder of the base model
    config = folder / "adapter_config.json"
    settings = json.loads(config.read_text(encoding="utf-8"))
    settings["base_model_name_or_path"] = public_name(backbone.settings.model)
    config.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _write_replay(found: Episodes, env: gym.Env, path: Path) -> None:
    """Write the pictures of the first episode, if all of its turns have one of the same size."""
    pictures = [turn.picture for turn in found[0][:MAX_FRAMES]]
    frames = [pixels_of(picture) for picture in pictures if picture is not None]
    if len(frames) < len(pictures) or len({frame.shape for frame in frames}) != 1:
        return
    per_second = max(1, round(float(env.metadata.get("render_fps", 4))))
    path.write_bytes(animated_png(np.stack(frames), min(per_second, 30)))
