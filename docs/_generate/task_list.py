"""Say which tasks have a page, and what each page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lmpolicy.envs import TEXT_WORLD


@dataclass(frozen=True)
class Page:
    """A page about one task."""

    name: str
    title: str
    module: str
    """Module whose docstring says what is read, done and rewarded; with a class for the docstring of that class."""
    task: str
    """Class of the task."""
    env_id: str
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``gymnasium.make`` in the example."""
    wrapper: str = ""
    """Further arguments of the wrapper in the example, as code."""
    actions: Sequence[str] = ()
    """Phrases that the example takes before it shows the prompt."""
    seed: int = 0
    settings: Sequence[Mapping[str, Any]] = ({},)
    """Arguments of the env of each of its named settings; none if it has only general ones."""
    results: Mapping[str, str] = field(default_factory=dict)
    """Rows of the tables of results, by the name of the benchmark's task."""
    package: str = ""
    """Module that must be there to run the example."""
    install: str = "pip install ."
    java: bool = False
    words: str = ""
    """The task of the named settings, as code, where it is not the default one."""
    success: bool = False
    """Whether results are shares of episodes that succeed, instead of returns."""
    more: str = ""
    """What else to read, in a sentence."""
    shown: str = "print(env.prompt)"
    """Last line of the example."""


COINS, HOUSE = "coin collector, unseen games", "a single house"
ERRANDS = "[Kitchen and house](../guide/macro-worlds.md) says what an expert reaches, and more."
WORLDS = "[Grids and text adventures](../guide/worlds.md) has more."

PAGES = (
    Page(
        "cartpole",
        "CartPole",
        "lmpolicy.envs.cart_pole",
        "CartPole",
        "CartPole-v1",
        actions=("push left", "push right", "push right"),
        results={"cartpole": "CartPole-v1", "cartpole-rephrased": "in other words"},
        more="[Tuning](../tuning.md) says what that is owed to, [Trials](../trials.md#cartpole-v1) what failed.",
    ),
    Page(
        "acrobot",
        "Acrobot",
        "lmpolicy.envs.acrobot",
        "Acrobot",
        "Acrobot-v1",
        actions=("push left",) * 3,
        words="lmpolicy.envs.Acrobot(coarse=True)",
        results={"acrobot": "Acrobot-v1, shaped reward in training"},
        more="[Trials](../trials.md#acrobot-v1) says what failed.",
    ),
    Page(
        "mountaincar",
        "MountainCar",
        "lmpolicy.envs.mountain_car",
        "MountainCar",
        "MountainCar-v0",
        actions=("push left",) * 3,
        results={"mountaincar": "MountainCar-v0, shaped reward in training"},
        more="[Tuning](../tuning.md#help-where-chance-finds-no-reward) says what the shaped reward is.",
    ),
    Page(
        "pendulum",
        "Pendulum",
        "lmpolicy.envs.pendulum",
        "Pendulum",
        "Pendulum-v1",
        actions=("turn hard left",) * 3,
        settings=(),
    ),
    Page(
        "lunarlander",
        "LunarLander",
        "lmpolicy.envs.lunar_lander",
        "LunarLander",
        "LunarLander-v3",
        actions=("push up",) * 3,
        settings=(),
        package="Box2D",
        install='pip install ".[box2d]"',
    ),
    Page(
        "blackjack",
        "Blackjack",
        "lmpolicy.envs.blackjack",
        "Blackjack",
        "Blackjack-v1",
        results={"blackjack": "Blackjack-v1"},
        package="pygame",
        more="[Trials](../trials.md#blackjack-v1) says what failed.",
    ),
    Page(
        "frozenlake",
        "FrozenLake",
        "lmpolicy.envs.frozen_lake",
        "FrozenLake",
        "FrozenLake-v1",
        env_kwargs={"is_slippery": False},
        actions=("move down",),
        settings=({"is_slippery": True}, {"is_slippery": False}),
        results={"frozenlake-slippery": "slippery", "frozenlake": "not slippery"},
        more="A real language model on the same lake: [Results](../results.md#a-real-language-model-learns).",
    ),
    Page(
        "cliffwalking",
        "CliffWalking",
        "lmpolicy.envs.cliff_walking",
        "CliffWalking",
        "CliffWalking-v1",
        actions=("move up", "move right"),
        results={"cliffwalking": "CliffWalking-v1, 200 steps"},
        more="[Trials](../trials.md#cliffwalking-v1) says what failed.",
    ),
    Page(
        "taxi",
        "Taxi",
        "lmpolicy.envs.taxi",
        "Taxi",
        "Taxi-v4",
        actions=("move down",),
        words="lmpolicy.envs.Taxi(legal_only=True)",
        results={"taxi": "Taxi-v4, 200 steps, legal moves only for the language model"},
        more="[Trials](../trials.md#taxi-v4) says what failed.",
    ),
    Page(
        "minigrid",
        "MiniGrid and BabyAI",
        "lmpolicy.envs.babyai",
        "MiniGrid",
        "BabyAI-GoToObj-v0",
        actions=("turn left",),
        success=True,
        results={
            "babyai-redball": "BabyAI-GoToRedBallNoDists-v0",
            "babyai-goobj": "BabyAI-GoToObj-v0",
            "minigrid-empty": "MiniGrid-Empty-8x8-v0",
            "minigrid-doorkey": "MiniGrid-DoorKey-5x5-v0",
        },
        package="minigrid",
        install='pip install ".[minigrid]"',
        more=WORLDS,
    ),
    Page(
        "textworld",
        "TextWorld",
        "lmpolicy.envs.textworld",
        "TextWorld",
        TEXT_WORLD,
        env_kwargs={"level": 3, "games": 4},
        wrapper="max_prompt_bytes=8192",
        actions=("go north",),
        settings=(
            {"challenge": "coin_collector"},
            {"challenge": "simple", "challenge_settings": {"rewards": "dense", "goal": "detailed"}},
        ),
        words="lmpolicy.envs.TextWorld(list_commands=False, tell_way_back=True)",
        success=True,
        results={"textworld-coins": COINS, "textworld-one-house": HOUSE},
        package="textworld",
        install='pip install ".[textworld]"',
        more=WORLDS,
    ),
    Page(
        "textworld-express",
        "TextWorldExpress",
        "lmpolicy.envs.textworld_express",
        "TextWorldExpress",
        "lmpolicy/TextWorldExpress-v0",
        env_kwargs={"game": "coin", "settings": "numLocations=3,includeDoors=0", "games": 20},
        wrapper="max_prompt_bytes=8192",
        settings=(),
        package="textworld_express",
        install='pip install ".[textworld-express]"',
        java=True,
        more="[Environments of other packages](../guide/foreign-envs.md#textworldexpress) shows another game.",
    ),
    Page(
        "scienceworld",
        "ScienceWorld",
        "lmpolicy.envs.scienceworld",
        "ScienceWorld",
        "lmpolicy/ScienceWorld-v0",
        env_kwargs={"task": "boil"},
        wrapper="max_prompt_bytes=32768",
        settings=(),
        package="scienceworld",
        install='pip install ".[scienceworld]"',
        java=True,
        shown='print(env.prompt.messages[-1][1])\nprint(len(env.prompt.actions), "phrases")',
        more="[Environments of other packages](../guide/foreign-envs.md#scienceworld) shows another experiment.",
    ),
    Page(
        "tomato-salad",
        "Kitchen",
        "lmpolicy.envs.tomato_salad",
        "TomatoSalad",
        "lmpolicy/TomatoSalad-v0",
        actions=("take the tomato",),
        words="lmpolicy.envs.TomatoSalad(list_actions=False)",
        results={"tomato-salad": "kitchen"},
        more=ERRANDS,
    ),
    Page(
        "household",
        "House",
        "lmpolicy.envs.household",
        "Household",
        "lmpolicy/Household-v0",
        env_kwargs={"task": "food"},
        actions=("open the fridge",),
        settings=({"task": "food"}, {"task": "entertainment"}),
        words="lmpolicy.envs.Household(list_actions=False)",
        success=True,
        results={"household-food": "food", "household-entertainment": "entertainment"},
        more=ERRANDS,
    ),
    Page(
        "tictactoe",
        "Tic-tac-toe",
        "lmpolicy.envs.one_seat",
        "TicTacToe",
        "lmpolicy/TicTacToe-v0",
        env_kwargs={"opponent": "careful"},
        actions=("centre",),
        settings=(),
        package="pettingzoo",
        install='pip install ".[pettingzoo]"',
        more="[Other games with turns](../guide/foreign-envs.md#pettingzoo) are a few lines.",
    ),
    Page(
        "generic",
        "Any other environment",
        "lmpolicy.text.task.GenericTask",
        "GenericTask",
        "CartPole-v1",
        wrapper="lmpolicy.GenericTask()",
        actions=("action 0", "action 1"),
        settings=(),
        results={"cartpole-generic": "CartPole-v1 in generic words"},
        more="[Environments of other packages](../guide/foreign-envs.md) shows the words of many packages. "
        "[Your own words](../guide/words.md) are better.",
    ),
)
