"""Settings that were found by experiment, by env id, for the unmodified PPO of Stable-Baselines3."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lmpolicy.envs import (
    HOUSEHOLD,
    TEXT_WORLD,
    TOMATO_SALAD,
    Acrobot,
    Household,
    Taxi,
    TextWorld,
    TomatoSalad,
    package_of,
)
from lmpolicy.training.settings.env_lookup import check_env_kwargs, find_spec
from lmpolicy.training.settings.hyperparameters import Hyperparameters
from lmpolicy.training.shaping import AcrobotEnergy, DiscoveryReward, MountainCarRule, PotentialShaper


def hyperparameters(env_id: str, **env_kwargs: Any) -> Hyperparameters:
    """Look up the named settings of an env; see :class:`Hyperparameters`.

    :param env_id: Gymnasium id. An env without settings of its own gets general ones, to start from. For an env without
        id, make settings by hand: ``Hyperparameters(MyEnv)``.
    :param env_kwargs: arguments of ``gymnasium.make``, e.g. ``is_slippery=False``. Where an env has several settings,
        these arguments choose among them. An argument that is not given counts with the default that the env is
        registered with.
    :raises gymnasium.error.NameNotFound: if there is no such id; the message names ids like it.
    :raises TypeError: if ``env_id`` is no string, or an argument is a setting and not an argument of the env; the
        message says what to do.
    """
    spec = find_spec(env_id)
    check_env_kwargs(env_id, spec, env_kwargs)
    known = [settings for settings in NAMED_SETTINGS if settings.env_id == env_id]
    if not known:
        general = PACKAGE_DEFAULTS.get(package_of(env_id) or "", {})
        return Hyperparameters(env_id, env_kwargs=env_kwargs, **general)
    asked = {**(spec.kwargs if spec else {}), **env_kwargs}
    settings = next((one for one in known if {**one.env_kwargs, **asked} == {**asked, **one.env_kwargs}), known[0])
    return replace(settings, env_kwargs={**settings.env_kwargs, **env_kwargs})


TIME_LIMIT = {"max_episode_steps": 200}
READ: dict[str, Any] = {"score_normalization": "sum"}
"""For envs whose phrases the bundled LM has read."""
GRID_DEFAULTS: dict[str, Any] = {
    **READ,
    "total_timesteps": 40_000,
    "n_envs": 16,
    "n_steps": 16,  # an update after each 256 env steps, docs/trials.md
    "batch_size": 128,
    "n_epochs": 10,
    "gamma": 0.97,  # the sooner, the more points, and missions are short
    "optimizer": "Adamax",
    "learning_rate": (1e-3, 0.0),
    "ent_coef": (0.003, 0.0),  # below 0, where no goal was found yet, none is found any more
    "normalize_reward": False,  # their scale would fall as success grows common, docs/trials.md
    "normalize_advantage": False,
}
"""For every grid of MiniGrid and BabyAI. Their rewards are rare at first."""
SMALL_ROOM: dict[str, Any] = {**GRID_DEFAULTS, "total_timesteps": 20_000}
"""For a room with little in it: it is soon learnt, and steadier as the rate falls sooner, docs/trials.md."""
PACKAGE_DEFAULTS: dict[str, dict[str, Any]] = {
    "minigrid": GRID_DEFAULTS,
    "textworld-express": {"wrapper_kwargs": {"max_prompt_bytes": 8192}},
    "scienceworld": {"wrapper_kwargs": {"max_prompt_bytes": 32_768}},
}
"""For envs of a package that have no settings of their own; the texts of some games are long."""
TEXT_WORLD_DEFAULTS: dict[str, Any] = {
    "wrapper_kwargs": {"max_prompt_bytes": 8192},
    "total_timesteps": 8_000,
    "n_envs": 16,
    "n_steps": 32,
    "batch_size": 128,
    "n_epochs": 2,
    "gae_lambda": 0.9,
    "optimizer": "Adam",
    "learning_rate": (5e-4, 1e-4),
    "ent_coef": (0.01, 0.0),
    "normalize_advantage": True,
    "task": TextWorld(list_commands=False),
    "score_normalization": "token",  # by "sum", long or rare commands may be so unlikely that they are never tried
}
"""For every challenge of TextWorld: prompts are long, and there is much to learn from few of them."""
MACRO_ACTION_DEFAULTS: dict[str, Any] = {
    "total_timesteps": 20_000,
    "n_envs": 16,
    "n_steps": 16,  # an update after each 256 env steps, docs/trials.md
    "batch_size": 128,
    "n_epochs": 10,
    "optimizer": "Adamax",
    "learning_rate": (1e-3, 0.0),
    # Below 0 at the end, or the most likely actions may fail where sampled ones come through.
    "ent_coef": (0.01, -0.01),
    # As they are: scaled to size 1, small costs drown a reward that comes seldom. In the house, each step costs; in the
    # kitchen, to serve too early does, and some seeds never serve again: docs/trials.md.
    "normalize_reward": False,
    "normalize_advantage": False,
    "score_normalization": "token",  # by "sum", short phrases such as "chop" would be far more likely than long ones
}
"""For kitchen and house, whose episodes are about ten macro-actions."""
RENDERED_AS_TEXT = {"render_mode": "ansi"}
"""Without it, Stable-Baselines3 asks the env for pictures, which it does not have."""
MADE_GAMES = {**RENDERED_AS_TEXT, "game": None}
"""For games of a challenge; a game of one's own is of no known challenge."""

NAMED_SETTINGS = (
    Hyperparameters(
        "CartPole-v1",
        **READ,
        total_timesteps=20_000,
        n_steps=64,  # with 128, the policy is updated half as often, and some seeds lose what they had: docs/trials.md
        batch_size=256,
        n_epochs=5,
        gamma=0.995,  # the cart takes hundreds of steps to reach the end of the track
        optimizer="Adam",
        learning_rate=(3e-4, 0.0),
        # Small, since advantages as they are become small, too. Below 0, or sampled actions would still let the pole
        # fall when the most likely ones hold it.
        ent_coef=(-0.004, -0.012),
        normalize_advantage=False,
    ),
    Hyperparameters(
        "FrozenLake-v1",
        **READ,
        total_timesteps=100_000,
        env_kwargs={"is_slippery": True},
        n_steps=128,
        batch_size=256,
        n_epochs=10,
        optimizer="Adamax",  # Adam loses the way in single updates, docs/trials.md
        learning_rate=(1e-3, 1e-4),
        ent_coef=(0.002, 0.0),
        normalize_advantage=True,
    ),
    Hyperparameters(
        "FrozenLake-v1",
        **READ,
        env_kwargs={"is_slippery": False},
        total_timesteps=20_000,
        n_steps=16,  # an update after each 128 env steps, since there are few different prompts
        batch_size=128,
        n_epochs=10,
        gamma=0.98,
        gae_lambda=1.0,
        normalize_reward=False,  # their scale would fall as success grows common, docs/trials.md
        optimizer="Adamax",  # Adam leaps at a rare failure after long success, and forgets the way
        learning_rate=(1e-3, 0.0),
        ent_coef=(0.005, 0.0),
        target_kl=0.05,  # with few different prompts, many epochs go far
        normalize_advantage=False,
    ),
    Hyperparameters(
        "Blackjack-v1",
        **READ,
        total_timesteps=60_000,
        n_steps=128,
        batch_size=1024,
        n_epochs=10,
        gamma=1.0,
        gae_lambda=1.0,
        optimizer="Adamax",
        learning_rate=(1e-3, 0.0),
        # Below 0 at the end, so that sampled actions are as good as the most likely ones.
        ent_coef=(0.03, -0.01),
        normalize_reward=False,
        normalize_advantage=True,
        critic_lr_factor=1.0,
    ),
    Hyperparameters(
        "CliffWalking-v1",
        **READ,
        env_kwargs=TIME_LIMIT,
        total_timesteps=60_000,
        n_steps=128,
        batch_size=512,
        n_epochs=10,
        gae_lambda=0.9,
        optimizer="Adamax",
        learning_rate=(1e-3, 1e-4),
        # Much, to find the goal at all; below 0 at the end, or sampled actions would go a safer and longer way.
        ent_coef=(0.02, -0.005),
        normalize_advantage=False,
    ),
    Hyperparameters(
        "Taxi-v4",
        **READ,
        total_timesteps=100_000,
        env_kwargs=TIME_LIMIT,
        task=Taxi(legal_only=True),
        n_steps=128,
        batch_size=512,
        n_epochs=10,  # of each 1 024 env steps, docs/trials.md
        gae_lambda=0.9,
        optimizer="Adamax",
        learning_rate=(1e-3, 1e-4),
        ent_coef=(0.01, -0.005),
        normalize_advantage=False,
    ),
    Hyperparameters(
        "Acrobot-v1",
        **READ,
        total_timesteps=20_000,
        training_wrapper=PotentialShaper(AcrobotEnergy()),
        task=Acrobot(coarse=True),
        n_envs=16,
        n_steps=32,
        batch_size=512,
        n_epochs=5,
        gae_lambda=0.8,  # what a push adds in energy shows at once; later gains are other pushes' noise
        optimizer="Adam",
        learning_rate=(4e-4, 0.0),
        ent_coef=(0.01, 0.0),
        normalize_advantage=True,
    ),
    Hyperparameters(
        "MountainCar-v0",
        **READ,
        total_timesteps=70_000,
        training_wrapper=PotentialShaper(MountainCarRule()),
        n_envs=16,
        n_steps=64,
        batch_size=512,
        n_epochs=4,
        gae_lambda=0.5,  # what a push is worth shows at once; later gains are other pushes' noise
        optimizer="Adam",
        learning_rate=(7e-4, 0.0),
        ent_coef=(0.01, 0.0),
        normalize_advantage=True,
        value_gradient=True,  # without, the critic knows less of where the swing is: docs/trials.md
    ),
    Hyperparameters(
        TEXT_WORLD,
        **{
            **TEXT_WORLD_DEFAULTS,
            "gamma": 0.3,  # new rooms are rewarded at once; a long view would reward finding back after a wrong turn
            "optimizer": "Adamax",  # with Adam, the most likely commands may be lost and found again: docs/trials.md
            "learning_rate": (1e-3, 0.0),
            "ent_coef": (0.02, 0.0),
            "task": TextWorld(list_commands=False, tell_way_back=True),
        },
        env_kwargs={**MADE_GAMES, "challenge": "coin_collector", "reward": "score"},
        training_wrapper=DiscoveryReward,
    ),
    Hyperparameters(
        TEXT_WORLD,
        **{
            **TEXT_WORLD_DEFAULTS,
            "total_timesteps": 10_000,
            "n_epochs": 4,
            "gamma": 0.6,  # a point is seldom more than two commands away
            "learning_rate": (1e-3, 0.0),
        },
        env_kwargs={
            **MADE_GAMES,
            "challenge": "simple",
            "challenge_settings": {"rewards": "dense", "goal": "detailed"},
        },
    ),
    Hyperparameters(TEXT_WORLD, **TEXT_WORLD_DEFAULTS, env_kwargs=RENDERED_AS_TEXT),
    *(Hyperparameters(env_id, **SMALL_ROOM) for env_id in ("BabyAI-GoToRedBallNoDists-v0", "BabyAI-GoToObj-v0")),
    Hyperparameters(
        TOMATO_SALAD,
        # More than in the house: a dish served too early costs more than a step, and must go on being tried.
        **{**MACRO_ACTION_DEFAULTS, "ent_coef": (0.05, -0.01)},
        env_kwargs=RENDERED_AS_TEXT,
        task=TomatoSalad(list_actions=False),
    ),
    Hyperparameters(
        HOUSEHOLD,
        **MACRO_ACTION_DEFAULTS,
        env_kwargs=RENDERED_AS_TEXT,
        task=Household(list_actions=False),
    ),
)
"""All named settings. Of several for one id, :func:`hyperparameters` takes the first that contradicts no argument."""
