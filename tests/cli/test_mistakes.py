"""Forty mistakes of a new user: one clear message each, with the remedy, without a traceback and without lost work."""

from __future__ import annotations

import errno
import json
import re
import shlex
from pathlib import Path

import pytest
from helpers.commands import ENV, TINY, lmpolicy, succeed

RUN = "runs/bulbs-Bulb-v0/1"
MISTAKES: dict[str, tuple[str, str]] = {
    # The command and its options
    "a command misspelt": ("tarin CartPole-v1", r"No such command 'tarin'\. Did you mean 'train'"),
    "an option misspelt": ("train CartPole-v1 --sede 3", r"No such option: --sede.*--seed"),
    "a text for a number": ("train CartPole-v1 --steps many", r"'--steps'.* valid int"),
    "nothing to train on": ("train", r"name an env, as in lmpolicy train CartPole-v1"),
    "no folder to export to": (f"export {RUN}", r"Missing option '--output'"),
    "no episodes": (f"evaluate {RUN} --episodes 0", r"'--episodes'.*(greater than or equal to 1|x>=1)"),
    # The env
    "an env in lower case": ("train cartpole-v1", r"no env 'cartpole-v1': did you mean .*CartPole-v1"),
    "an env misspelt": ("train FrozenLak-v1", r"did you mean FrozenLake"),
    "a version that is not there": ("train Taxi-v9", r"did you mean Taxi-v"),
    "an env without its package": ("train Bulb-v0", r"did you mean bulbs/Bulb-v0"),
    "a package that is not there": ("train nothing/Bulb-v0", r"no package 'nothing'.*install the package"),
    "an env misspelt, of a package": ("train bulbs/Blub-v0", r"did you mean bulbs/Bulb-v0"),
    "an argument of the env misspelt": (f"train {ENV} -e lenght=3", r"no argument 'lenght': did you mean 'length'"),
    "an argument without a value": (f"train {ENV} -e length", r"--env-arg takes name=value.*got 'length'"),
    "a setting as an argument of the env": (f"train {ENV} -e gamma=0.9", r"gamma is no argument.* but a setting"),
    "an env that shows pictures": ("train CarRacing-v3 --steps 8", r"image|numbers"),
    # The words
    "a task misspelt": (f"train {ENV} --task bulbs:Wrods", r"has no 'Wrods': did you mean 'Words'"),
    "a bundled task misspelt": ("train CartPole-v1 --task Cartpol", r"no task 'Cartpol': did you mean 'CartPole'"),
    "a module that is not there": (f"train {ENV} --task blubs:Words", r"No module named 'blubs'.*current folder"),
    "a task of another env": (
        "train CartPole-v1 --task FrozenLake",
        r"FrozenLake reads its words from an env of another kind than .*CartPole",
    ),
    "a task that is none": (f"train {ENV} --task bulbs:NUMBER", r"must be a class of lmpolicy.TextTask.*3"),
    # The model
    "a model misspelt": ("train CartPole-v1 --model smollm2-135m-instuct", r"did you mean 'smollm2-135m-instruct'"),
    "a folder of a model that is not there": ("train CartPole-v1 --model ./my-model", r"no folder \./my-model"),
    "a file of a model that is not there": ("train CartPole-v1 --model my.gguf", r"no file my\.gguf"),
    "an adapter that is not there": (
        "train CartPole-v1 --adapter ./my-adapter",
        r"no folder \./my-adapter.*Give adapter=",
    ),
    "a device that is not there": ("train CartPole-v1 --device cudda", r"--device cudda does not work here"),
    "an answer of no tokens": ("train CartPole-v1 --generate 0", r"longest answer in tokens, 1 or more; got 0"),
    # The settings
    "a setting misspelt": ("train CartPole-v1 -s lerning_rate=1", r"did you mean 'learning_rate'"),
    "a text for a setting": ("train CartPole-v1 -s n_steps=many", r"n_steps is a whole number; got 'many'"),
    "a number out of range": ("train CartPole-v1 -s gamma=99", r"gamma is from 0 to 1; got 99"),
    "no env steps": ("train CartPole-v1 --steps 0", r"--steps: total_timesteps must be 1 or more; got 0"),
    "runs in a file": ("train CartPole-v1 --output broken.yaml", r"no folder can be made at .*broken\.yaml.*another"),
    "no copies": ("train CartPole-v1 --n-envs 0", r"--n-envs: n_envs must be 1 or more; got 0"),
    "a negative seed": ("train CartPole-v1 --seed -1", r"seed must be 0 or more; got -1"),
    "a weight below zero": ("train CartPole-v1 -s vf_coef=-1", r"--set: vf_coef must be 0 or more; got -1"),
    "a clip range below zero": ("train CartPole-v1 -s clip_range=-3", r"clip_range must be 0 or more; got -3"),
    "a learning rate below zero": (
        "train CartPole-v1 -s learning_rate=[1,-1]",
        r"learning_rate must be 0 or more; got",
    ),
    "gradients of no length": ("train CartPole-v1 -s max_grad_norm=-1", r"max_grad_norm must be above 0; got -1"),
    "no divergence at all": ("train CartPole-v1 -s target_kl=0", r"target_kl must be above 0; got 0"),
    "a warm-up below zero": ("train CartPole-v1 -s critic_warmup=-2", r"critic_warmup must be 0 or more; got -2"),
    "a warm-up of no critic": ("train CartPole-v1 -s critic_warmup=2 -s vf_coef=0", r"--set critic_warmup=0 leaves"),
    "minibatches of one": (
        "train CartPole-v1 -s batch_size=1 -s normalize_advantage=true",
        r"batch_size=1: .*--set batch_size=32, or --set normalize_advantage=false",
    ),
    "rollouts of one": (
        "train CartPole-v1 -s n_steps=1 --n-envs 1 -s normalize_advantage=true",
        r"n_steps=1 with n_envs=1: .*--set n_steps=32, or --set normalize_advantage=false",
    ),
    "a device of settings that is not there": (
        "train --settings device.yaml",
        r"device\.yaml has device: cudda, but --device cudda does not work here.*--device auto",
    ),
    "a model without a name": ("train CartPole-v1 --model ''", r"got an empty text: name one"),
    "turns for no file": ("play CartPole-v1 --by random --append", r"--append and --overwrite .*--output FILE"),
    "settings that are not there": ("train --settings my.yaml", r"no file my\.yaml: .*--dry-run prints one"),
    "settings that are no YAML": ("train --settings broken.yaml", r"broken\.yaml is no file of settings"),
    "a key misspelt in settings": ("train --settings misspelt.yaml", r"no setting 'hyperparamters': did you mean"),
    "settings of another env": ("train Taxi-v4 --settings cartpole.yaml", r"for CartPole-v1, not for Taxi-v4"),
    # Runs and files
    "a run that is not there": ("evaluate runs/bulbs-Bulb", r"no folder runs/bulbs-Bulb: did you mean '.*Bulb-v0/1'"),
    "the folder of all runs": ("evaluate runs/bulbs-Bulb-v0", r"is no run, but these in it are: .*Bulb-v0/1"),
    "a folder that is no run": ("explain bulbs", r"bulbs is no run, for it has no settings\.yaml"),
    "a run that is complete": (f"train --resume {RUN}", r"is complete, with 64 env steps: .*--steps 128 goes further"),
    "a new model for an old run": (f"train --resume {RUN} --model m", r"--model does not go with --resume"),
    "a first seed for an old run": (f"train --resume {RUN} --seed 0", r"--seed does not go with --resume"),
    "no tokens for an old run": (f"train --resume {RUN} --generate 0", r"--generate does not go with --resume"),
    "no copies for an old run": (f"train --resume {RUN} --n-envs 0", r"--n-envs does not go with --resume"),
    "a new folder for an old run": (f"train --resume {RUN} --output new", r"--output does not go with --resume"),
    "demonstrations that are not there": ("train CartPole-v1 --demonstrations my.jsonl", r"no file my\.jsonl: .*play"),
    "demonstrations of another env": (f"train {ENV} --demonstrations other.jsonl", r"other\.jsonl, line 1"),
    "demonstrations that settings name, elsewhere": (
        "train --settings elsewhere.yaml",
        r"elsewhere\.yaml names the demonstrations my\.jsonl, but there is no such file in /.*--demonstrations FILE",
    ),
    "demonstrations of a phrase that there is not": (
        f"train {ENV} --demonstrations phrase.jsonl",
        r"phrase\.jsonl, line 1: 'off' is not one of the legal phrases: .*Correct it, or delete the line\s*$",
    ),
    "demonstrations that are too long": (
        f"train {ENV} --demonstrations long.jsonl",
        r"long\.jsonl, line 1: .*: --set max_prompt_bytes=\d+ or more, or delete the line\s*$",
    ),
    "demonstrations of no turn": (f"train {ENV} --demonstrations empty.jsonl", r"no turns: .*play .* --output FILE"),
    "demonstrations that are none": (f"train {ENV} --demonstrations broken.yaml", r"broken\.yaml, line 1"),
    "a report of nothing": ("report bulbs", r"no log and no episodes"),
    "a report of a run that is not there": ("report runs/9", r"runs/9 is not there"),
    "an export onto something else": (f"export {RUN} --output bulbs", r"not empty; name another one, or pass --over"),
    # Comparing, playing, pretraining
    "a method misspelt": (f"compare {ENV} --methods lm,clasic-raw", r"did you mean 'classic-raw'"),
    "seeds that are none": (f"compare {ENV} --seeds few", r"--seeds takes numbers and ranges.*got 'few'"),
    "a player misspelt": (f"play {ENV} --by rndom", r"no such player: did you mean 'random'"),
    "a function misspelt": (f"play {ENV} --by bulbs:bto", r"no such function: did you mean 'bot'"),
    "a bot for any env": (f"play {ENV} --by bot", r"plays levels of BabyAI, not .*module:function"),
    "phrasings that are none": (f"pretrain {ENV} --output new --wordings broken.yaml", r"broken\.yaml is no JSON"),
}


@pytest.fixture(scope="module", autouse=True)
def run(project: Path) -> Path:
    """A run, and files that are not what they should be."""
    succeed("train", ENV, *TINY)
    Path("broken.yaml").write_text("env: [CartPole-v1\n")
    Path("misspelt.yaml").write_text("env: CartPole-v1\nhyperparamters: {gamma: 0.9}\n")
    Path("cartpole.yaml").write_text("env: CartPole-v1\n")
    other = {"messages": [{"role": "user", "content": "Hello."}], "actions": ["a", "b"], "action": "a"}
    Path("other.jsonl").write_text(json.dumps(other) + "\n")
    Path("device.yaml").write_text("env: CartPole-v1\ndevice: cudda\n")
    Path("elsewhere.yaml").write_text("env: CartPole-v1\ndemonstrations: my.jsonl\n")
    phrases = {"actions": ["action 0", "action 1"]}
    Path("phrase.jsonl").write_text(json.dumps({**other, **phrases, "action": "off"}) + "\n")
    long = {"messages": [{"role": "user", "content": "Hello. " * 10_000}]}
    Path("long.jsonl").write_text(json.dumps({**long, **phrases, "action": "action 0"}) + "\n")
    Path("empty.jsonl").touch()
    return project / RUN


def test_there_are_forty() -> None:
    assert len(MISTAKES) >= 40


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_remedy(mistake: str) -> None:
    command, expected = MISTAKES[mistake]
    before = {path for path in Path().rglob("*") if "__pycache__" not in path.parts}
    done = lmpolicy(*shlex.split(command))
    said = re.sub(r"[\s│]+", " ", done.err)
    assert done.code in (1, 2), said
    assert re.search(expected, said), said
    assert "Traceback" not in said
    assert done.out == ""
    after = {path for path in Path().rglob("*") if "__pycache__" not in path.parts}
    assert after == before, "a command that fails at once leaves nothing behind"


def test_debug_shows_where_an_error_comes_from() -> None:
    with pytest.raises(FileNotFoundError, match="no folder nowhere"):
        lmpolicy("--debug", "evaluate", "nowhere")


def test_an_error_of_the_code_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a mistake of ours")

    monkeypatch.setattr("lmpolicy.report.page.write_report", broken)
    with pytest.raises(KeyError):
        lmpolicy("report", RUN)


def test_a_reader_that_has_read_enough_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``lmpolicy report RUN | head -1``, whose pipe is closed after a line."""

    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("lmpolicy.report.page.write_report", closed)
    done = lmpolicy("report", RUN)
    assert (done.code, done.err) == (1, "")
