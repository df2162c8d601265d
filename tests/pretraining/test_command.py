"""A model for one's own env by one command: made in seconds here, trained further, taken up again, and refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch as th
from stable_baselines3 import PPO
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

import lmpolicy.pretraining.making as making
import lmpolicy.pretraining.training as training
from lmpolicy import GenericTask, LMActorCriticPolicy, TextObservationWrapper
from lmpolicy.comparison.fingerprints import describe
from lmpolicy.pretraining.__main__ import main, parse
from lmpolicy.pretraining.bundled_mixture import bundled_mixture
from lmpolicy.pretraining.making import SMALLEST_VOCABULARY, Size, check_folder, describe_training
from lmpolicy.pretraining.mixture import Mixture
from lmpolicy.pretraining.own_mixture import own_mixture
from lmpolicy.pretraining.tokenizer import train_tokenizer

OPTIONS = {
    "steps": 6,
    "tokens": 512,
    "sample": 150,
    "vocabulary": 400,
    "width": 32,
    "layers": 1,
    "heads": 2,
    "threads": 1,
}
TINY = [word for name, value in OPTIONS.items() for word in (f"--{name}", str(value))]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = th.get_num_threads()
    yield
    th.set_num_threads(before)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has read a little of Blackjack."""
    folder = tmp_path_factory.mktemp("made") / "model"
    main(["--env", "Blackjack-v1", "--output", str(folder), *TINY])
    return folder


def test_the_folder_is_a_model_that_a_policy_takes(made: Path) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(made), AutoTokenizer.from_pretrained(made)
    assert model.config.vocab_size == len(tokenizer) == 400
    env = TextObservationWrapper(gym.make("Blackjack-v1"))
    options: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "device": "cpu"}
    PPO(LMActorCriticPolicy, env, policy_kwargs={"model": str(made)}, **options).learn(16)


def test_the_card_and_the_facts_say_what_was_read(made: Path) -> None:
    facts = json.loads((made / "pretraining.json").read_text())
    card = (made / "README.md").read_text()
    assert 1_000 < facts["tokens"] < 6 * 512
    assert {"Blackjack-v1", "unknown words"} <= set(facts["documents"]) <= {"Blackjack-v1", "numbers", "unknown words"}
    assert facts["env_steps"]["Blackjack-v1"] > 0
    assert f"| Blackjack-v1 | {facts['documents']['Blackjack-v1']} | {facts['env_steps']['Blackjack-v1']} |" in card
    assert "--env Blackjack-v1" in card
    assert not list(made.parent.glob(".*")), "nothing unfinished is left"


def test_the_tokenizer_cuts_nothing_off(made: Path) -> None:
    assert len(Tokenizer.from_file(str(made / "tokenizer.json")).encode("word " * 1000).ids) >= 1000


def test_more_of_the_same(made: Path, tmp_path: Path) -> None:
    main(["--env", "Blackjack-v1", "--base", str(made), "--output", str(tmp_path / "more"), "--steps", "3"])
    old, new = (AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (made, tmp_path / "more"))
    assert old.keys() == new.keys()
    assert any(not th.equal(old[name], new[name]) for name in old)
    assert (made / "tokenizer.json").read_bytes() == (tmp_path / "more" / "tokenizer.json").read_bytes()


def test_after_an_interruption_it_goes_on_and_ends_the_same(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmpolicy.pretraining.making.KEPT_EVERY", 2)
    real, steps = training._keep, []

    def keep(path: Path, step: int, *rest: Any) -> None:
        real(path, step, *rest)
        steps.append(step)
        if step == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(training, "_keep", keep)
    command = ["--env", "Blackjack-v1", "--output", str(tmp_path / "model"), *TINY]
    with pytest.raises(KeyboardInterrupt):
        main(command)
    assert not (tmp_path / "model").exists(), "a reader finds all of it, or nothing"
    main(command)
    assert steps == [2, 4], "the second time, only steps 5 and 6 are trained"
    one, other = (AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (made, tmp_path / "model"))
    assert all(th.allclose(one[name], other[name], atol=1e-6) for name in one)
    assert (made / "pretraining.json").read_text() == (tmp_path / "model" / "pretraining.json").read_text()


def test_the_unfinished_training_of_another_model_is_refused(tmp_path: Path) -> None:
    th.save({"step": 1, "loss": 0.0, "model": {"a": th.zeros(1)}, "parts": []}, tmp_path / ".model-unfinished.pt")
    with pytest.raises(ValueError, match="delete it to begin anew"):
        main(["--env", "Blackjack-v1", "--output", str(tmp_path / "model"), *TINY])


class Untouched:
    """A model of a few weights, which no training reaches."""

    device = th.device("cpu")

    def __init__(self) -> None:
        self.read = 0

    def load_state_dict(self, state: Any) -> None:
        self.read += 1


def test_a_file_with_other_facts_is_not_read(tmp_path: Path) -> None:
    path, facts = tmp_path / "unfinished.pt", {"envs": "CartPole-v1", "rate": "0.004"}
    model: Any = Untouched()
    th.save({"step": 3, "loss": 0.5, "facts": facts, "model": {}, "parts": []}, path)
    assert training._load(path, facts, model) == (3, 0.5)
    for others, told in (
        ({**facts, "rate": "0.1"}, "rate was 0.004, is 0.1"),
        ({}, "envs was CartPole-v1, is not set"),
    ):
        with pytest.raises(ValueError, match=rf"another model \(.*{told}.*\): delete it to begin anew, or repeat"):
            training._load(path, others, model)
    assert model.read == 1


SMALL = Size(vocabulary=400, width=32, layers=1, heads=2)


@pytest.fixture(scope="module")
def facts() -> Any:
    """Describes a training of Blackjack, of which something may be changed."""
    tokenizer = train_tokenizer(["a text", "another text"], 300)
    other = train_tokenizer(["a text", "quite another one"], 300)
    blackjack = own_mixture(["Blackjack-v1"])

    def facts(
        mixture: Mixture = blackjack, size: Size = SMALL, base: Path | None = None, is_other: bool = False
    ) -> dict[str, str]:
        return describe_training(mixture, size, base, other if is_other else tokenizer)

    return facts


def test_whatever_changes_the_weights_changes_what_is_kept_with_them(facts: Any, made: Path, tmp_path: Path) -> None:
    changed = [
        facts(own_mixture(["CartPole-v1"])),
        facts(own_mixture(["Blackjack-v1", "CartPole-v1"])),
        facts(own_mixture(["Blackjack-v1"], GenericTask)),
        facts(own_mixture(["Blackjack-v1"], wordings=(("stick", "stay"),))),
        facts(own_mixture(["Pendulum-v1"], action_bins=2)),
        facts(own_mixture(["Pendulum-v1"], action_bins=3)),
        *(facts(size=replace(SMALL, **{name: 2 * getattr(SMALL, name)})) for name in vars(SMALL)),
        facts(base=made),
        facts(is_other=True),
    ]
    shutil.copytree(made, tmp_path / "base")
    changed.append(facts(base=tmp_path / "base"))
    with (tmp_path / "base" / "model.safetensors").open("ab") as file:
        file.write(b"1")
    changed.append(facts(base=tmp_path / "base"))
    assert facts() == facts(own_mixture(["Blackjack-v1"]))
    assert len({str(one) for one in [facts(), *changed]}) == len(changed) + 1


@pytest.mark.parametrize("make", [bundled_mixture, lambda: own_mixture(["Blackjack-v1", "Pendulum-v1"])])
def test_what_is_kept_is_the_same_in_every_process(make: Any, facts: Any) -> None:
    pytest.importorskip("minigrid")
    assert facts(make()) == facts(make())
    assert " at 0x" not in describe(make()), "an address is another one in the next process"


# What cannot work is told before the work


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(*_: Any, **__: Any) -> None:
        raise AssertionError("the tokenizer was begun")

    monkeypatch.setattr(making, "train_tokenizer", begun)


@pytest.mark.usefixtures("no_work")
def test_a_file_in_the_place_of_the_folder_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "afile").touch()
    for folder in ("afile", "afile/model"):
        with pytest.raises(FileExistsError, match=r"afile is a file, so .*name another folder"):
            main(["--env", "Blackjack-v1", "--output", str(tmp_path / folder), *TINY])


def test_the_current_folder_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_folder(Path()) == tmp_path
    assert check_folder(Path("new/model")) == tmp_path / "new" / "model"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--width", "16", "--heads", "3"], r"width must be a multiple of twice.*take width 18"),
        (["--width", "2", "--heads", "4"], r"take width 8"),
        (["--vocabulary", "260"], r"vocabulary must be 261 or more.*got 260"),
        (["--rate", "0"], r"rate must be a number above 0"),
        (["--rate", "nan"], r"rate must be a number above 0"),
        (["--steps", "0"], r"steps must be 1 or more"),
        (["--base", "bundled", "--width", "64", "--sample", "5"], r"--sample and --width cannot be chosen with --base"),
        (["--base", "bundled", "--vocabulary", "400"], r"--vocabulary cannot be chosen with --base"),
    ],
)
def test_sizes_that_do_not_fit_are_told_at_once(options: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        main(["--env", "Blackjack-v1", "--output", str(tmp_path / "model"), *options])


def test_the_smallest_vocabulary_is_one_of_bytes() -> None:
    assert len(train_tokenizer(["a text"], SMALLEST_VOCABULARY)) == SMALLEST_VOCABULARY == 261


def test_a_base_that_is_not_there_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmpolicy.models.resolving._hub_answers", lambda: False)
    monkeypatch.setattr(making, "AutoTokenizer", None)
    with pytest.raises(OSError, match="nosuch is neither a folder nor in the cache"):
        main(["--env", "Blackjack-v1", "--base", "nosuch", "--output", str(tmp_path / "model")])


PACKAGE = """
import gymnasium as gym
from lmpolicy import TextTask

class Lamp(gym.Env):
    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.on = int(self.np_random.integers(2))
        return self.on, {}
    def step(self, action):
        self.on = action
        return self.on, float(action), bool(self.np_random.random() < 0.2), False, {}

class Words(TextTask):
    system_prompt = "There is a lamp."
    action_texts = ("dark please", "light please")
    def format_observation(self, observation):
        return f"The lamp is {'on' if observation else 'off'}."

gym.register("lamps/Lamp-v0", entry_point=Lamp)
"""


def test_an_env_of_a_package_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lamps.py").write_text(PACKAGE)
    (tmp_path / "phrasings.json").write_text('[["The lamp", "The light"], ["please", "now"]]')
    monkeypatch.syspath_prepend(tmp_path)
    command = ["--env", "lamps/Lamp-v0", "--task", "lamps:Words", "--wordings", str(tmp_path / "phrasings.json")]
    mixture = parse([*command, "--output", str(tmp_path / "model")]).mixture
    documents = mixture.documents(0)
    texts = " ".join(next(documents).text for _ in range(300))
    for part in ("The lamp is on.", "The light is off.", "light please", "dark now", "action 1", "There is a lamp."):
        assert part in texts, part


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--env", "CartPole-v1"], "--output: name the folder"),
        (["--env", "CartPool-v1", "--output", "x"], "CartPole"),
        (["--env", "nosuch/Env-v0", "--output", "x"], "no package 'nosuch' to import"),
        (["--env", "CartPole-v1", "--output", "x", "--task", "json"], "my_module:MyTask"),
        (["--env", "CartPole-v1", "--output", "x", "--task", "json:dumps"], "must be a class of lmpolicy.TextTask"),
        (["--env", "CartPole-v1", "--output", "x", "--task", "json:Missing"], "Missing"),
        (["--env", "CartPole-v1", "--output", "x", "--wordings", "nosuch.json"], "nosuch.json"),
        (["--output", "x"], "--env --bundled"),
    ],
)
def test_mistakes_are_named(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(options)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", '{"a": "b"}', '[["a"]]', '["ab"]', '[["a", ""]]'])
def test_wordings_that_are_none(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wordings.json").write_text(text)
    with pytest.raises(SystemExit):
        parse(["--env", "CartPole-v1", "--output", "x", "--wordings", str(tmp_path / "wordings.json")])
    assert re.search(r"is no JSON|must hold a list of lists", capsys.readouterr().err)


def test_a_base_with_another_chat_is_refused(tiny_models: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only models that were made here"):
        main(["--env", "CartPole-v1", "--base", str(tiny_models["llama"]), "--output", str(tmp_path / "model")])


def test_continuous_actions_are_cut_into_bins_where_the_task_has_no_phrases() -> None:
    own, generic = (source.make() for source in own_mixture(["Pendulum-v1"], action_bins=2).sources)
    assert "coast" in (own.fixed_phrases or ()), "its own words need no bins"
    assert len(generic.fixed_phrases or ()) == 2
