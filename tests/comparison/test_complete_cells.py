"""What a comparison has complete is not run again, an interruption loses little, and other settings are not mixed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.quick_comparison import QUICK, SMALL, settings
from helpers.side_env import Counting, Side, SideTask, Unseeded
from helpers.toy_envs import CorridorTask, Wall
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecNormalize, unwrap_vec_normalize

import lmpolicy
from lmpolicy.comparison.evaluating import Masked, evaluate
from lmpolicy.comparison.experiment import EVALUATION_SEED, Experiment
from lmpolicy.comparison.methods import EnvFacts


def test_complete_cells_are_not_run_again(run: Any, tmp_path: Path) -> None:
    run(methods=["random", "classic-raw"])
    assert run.cells == ["Side classic-raw seed 0", "Side random seed 0"]
    before = (tmp_path / "found" / "runs.csv").read_bytes()
    found = run(methods=["random", "classic-raw"])
    assert run.cells == []
    assert (tmp_path / "found" / "runs.csv").read_bytes() == before
    run(methods=["random"], seeds=[1, 0])
    assert run.cells == ["Side random seed 1"]
    assert found.summary[0]["method"] == "classic-raw"


def test_an_interruption_loses_the_cell_under_way_alone(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lmpolicy.comparison import running

    plain = running.run

    def stop(cell: Any) -> Any:
        if cell.seed == 1:
            raise KeyboardInterrupt
        return plain(cell)

    monkeypatch.setattr(running, "run", stop)
    with pytest.raises(KeyboardInterrupt):
        run(methods=["random"], seeds=[0, 1, 2])
    assert "1 of 3 cells are complete and kept" in capsys.readouterr().out
    monkeypatch.setattr(running, "run", plain)
    run(methods=["random"], seeds=[0, 1, 2])
    assert run.cells == ["Side random seed 1", "Side random seed 2"]


@pytest.mark.parametrize("method", ["lm", "lm-random"])
def test_a_language_model_goes_on_from_its_checkpoint(
    run: Any, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lmpolicy.comparison import cells

    plain, played = cells.evaluate, []

    def evaluate(*arguments: Any) -> Any:
        played.append(arguments)
        if len(played) == 6:  # in the third rollout: each policy is evaluated twice
            raise KeyboardInterrupt
        return plain(*arguments)

    longer = {"methods": [method], "steps": 128, "every": 16, "checkpoints": True}
    whole = run(folder=tmp_path / "whole", **longer)
    monkeypatch.setattr(cells, "evaluate", evaluate)
    with pytest.raises(KeyboardInterrupt):
        run(folder=tmp_path / "stopped", **longer)
    assert (tmp_path / "stopped" / "unfinished").is_dir()
    capsys.readouterr()
    found = run(folder=tmp_path / "stopped", **longer)
    assert f"Side {method} seed 0: goes on from 64 env steps" in capsys.readouterr().out
    rows, expected = (
        [{**row, "train_seconds": "", "cpu_seconds": ""} for row in one.runs[method, 0]] for one in (found, whole)
    )
    assert rows == expected
    assert [int(row["env_steps"]) for row in rows[::2]] == [*range(0, 129, 16)]
    seconds = [float(row["train_seconds"]) for row in found.runs[method, 0]]
    assert seconds == sorted(seconds)
    for folder in ("stopped", "whole"):
        assert not (tmp_path / folder / "unfinished").exists(), "complete cells need no checkpoint"


@pytest.mark.parametrize("checkpoints", [True, False])
def test_checkpoints_of_a_complete_cell_go_even_if_the_program_was_killed_before(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoints: bool
) -> None:
    from lmpolicy.comparison import comparing

    removed = comparing.remove_trainings

    def killed(cells: Any, folder: Path) -> None:
        if complete := list(cells):
            raise KeyboardInterrupt
        removed(complete, folder)

    with monkeypatch.context() as patch:
        patch.setattr(comparing, "remove_trainings", killed)
        with pytest.raises(KeyboardInterrupt):
            run(methods=["lm"], folder=tmp_path, checkpoints=True)
    assert list(tmp_path.glob("unfinished/lm-0-*"))
    run(methods=["lm"], folder=tmp_path, checkpoints=checkpoints)
    assert run.cells == []
    assert not (tmp_path / "unfinished").exists()


def test_what_was_learnt_is_kept_if_asked_for(run: Any, tmp_path: Path) -> None:
    methods = ["lm", "lm-random", "lm-frozen", "classic-raw", "random"]
    found = run(methods=methods, keep_models=True)
    kept = sorted(path.name for path in (tmp_path / "found" / "models").iterdir())
    assert kept == ["classic-raw-0.zip", "lm-0.vecnormalize.pkl", "lm-0.zip"]
    env = settings().make_env(0, training=False)
    model = PPO.load(found.model("lm", 0), env=env)
    last = {row["sampled"]: row for row in found.runs["lm", 0]}
    for sampled in (False, True):
        again = evaluate(model, env, QUICK["episodes"], sampled, seed=EVALUATION_SEED)
        assert again["mean_return"] == last[str(int(sampled))]["mean_return"]
    assert PPO.load(found.model("classic-raw", 0)).num_timesteps >= QUICK["steps"]
    with pytest.raises(FileNotFoundError, match=r"kept are: classic-raw-0, lm-0\. .*keep_models=True"):
        found.model("lm", 1)


@pytest.mark.parametrize(
    ("method", "env", "task"),
    [
        *((method, Side, SideTask) for method in ("lm", "classic-raw", "classic-raw+help", "classic-words")),
        *((method, Wall, CorridorTask) for method in ("classic-words", "classic-words+help", "classic-raw+help")),
    ],
)
def test_what_was_learnt_plays_as_it_was_evaluated(run: Any, method: str, env: Any, task: Any) -> None:
    masked = env is Wall and method.endswith("+help")
    learner = pytest.importorskip("sb3_contrib").MaskablePPO if masked else PPO
    classic = replace(SMALL, normalize=env is Side, normalize_reward=True)  # a cell of a corridor is no Box to scale
    given: dict[str, Any] = {"episodes": 20, "copies": 5, "classic": classic}
    found = run(settings(env, task), methods=[method], keep_models=True, steps=256, **given)
    envs = found.model_env(method, 0)
    model = learner.load(found.model(method, 0), env=envs, device="cpu")
    player = Masked(model, envs) if masked else model
    last = {row["sampled"]: row for row in found.runs[method, 0]}
    for sampled in (False, True):
        again = evaluate(player, envs, given["episodes"], sampled, seed=EVALUATION_SEED)
        expected = last[str(int(sampled))]
        assert {name: expected[name] for name in again} == again
    on = found.model_env(method, 0, training=True)
    scaling = unwrap_vec_normalize(on)
    assert isinstance(scaling, VecNormalize)
    assert scaling.ret_rms.count > 256
    assert (scaling.training, scaling.norm_reward) == (True, True)
    model = learner.load(found.model(method, 0), env=on, device="cpu")
    model.learn(32, reset_num_timesteps=False)
    assert model.num_timesteps >= 256 + 32


def test_a_model_that_was_kept_alone_is_handed_out_and_its_envs_say_what_they_lack(run: Any, tmp_path: Path) -> None:
    methods = ["classic-raw", "classic-words"]
    given = {"classic": replace(SMALL, normalize=True), "keep_models": True}
    found = run(methods=methods, **given)
    for path in (tmp_path / "found" / "models").glob("*.pkl"):
        path.unlink()
    for method, name in zip(methods, ("vecnormalize", "words"), strict=True):
        assert found.model(method, 0).exists()
        with pytest.raises(FileNotFoundError, match=rf"{method}-0\.{name}\.pkl is not there.*Delete the rows"):
            found.model_env(method, 0)
    with pytest.raises(FileNotFoundError, match=r"kept are: classic-raw-0, classic-words-0\."):
        found.model_env("random", 0)


def test_envs_of_other_settings_are_refused(run: Any) -> None:
    run(methods=["classic-raw"], keep_models=True)
    found = run(methods=["random"], classic=replace(SMALL, n_envs=2))
    with pytest.raises(ValueError, match=r"classic-raw-0\.zip was learnt with other settings"):
        found.model_env("classic-raw", 0)


def test_no_model_is_handed_out_for_the_rows_of_another(run: Any, tmp_path: Path) -> None:
    run(methods=["classic-raw"], keep_models=True, classic=replace(SMALL, normalize=True))
    assert len([*(tmp_path / "found" / "models").iterdir()]) == 2
    (tmp_path / "found" / "runs.csv").unlink()
    found = run(methods=["classic-raw"], classic=replace(SMALL, n_envs=2))
    with pytest.raises(FileNotFoundError, match="kept are: none"):
        found.model("classic-raw", 0)
    assert not [*(tmp_path / "found" / "models").iterdir()]


def test_no_model_is_handed_out_whose_rows_were_deleted(run: Any, tmp_path: Path) -> None:
    run(methods=["classic-raw"], keep_models=True)
    (tmp_path / "found" / "runs.csv").unlink()
    found = run(methods=["random"])
    for ask in (found.model, found.model_env):
        with pytest.raises(FileNotFoundError, match=r"no longer in runs\.csv: .*'classic-raw' and seed 0"):
            ask("classic-raw", 0)


def test_scaled_observations_of_a_model_are_recorded(run: Any) -> None:
    found = run(methods=["classic-raw"], keep_models=True, classic=replace(SMALL, normalize=True), steps=256)
    envs = found.model_env("classic-raw", 0)
    model = PPO.load(found.model("classic-raw", 0), env=envs, device="cpu")
    (played,) = lmpolicy.record_episodes(model, lmpolicy.TextObservationWrapper(Side(), SideTask), 1, seed=0)
    seen, _ = model.policy.obs_to_tensor(envs.normalize_obs(Side().reset(seed=0)[0]))
    expected = model.policy.get_distribution(seen).distribution.probs[0].tolist()
    assert list((played[0].probabilities or {}).values()) == pytest.approx(expected, abs=1e-4)


def test_nothing_that_was_learnt_is_kept_unless_asked_for(run: Any, tmp_path: Path) -> None:
    found = run(methods=["lm"])
    assert not (tmp_path / "found" / "models").exists()
    with pytest.raises(FileNotFoundError, match="kept are: none"):
        found.model("lm", 0)


def test_without_checkpoints_a_cell_begins_anew(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmpolicy.comparison import cells

    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(cells, "evaluate", stop)
    with pytest.raises(KeyboardInterrupt):
        run(methods=["lm"])
    assert not (tmp_path / "found" / "unfinished").exists()


def test_other_settings_are_named_and_not_mixed(run: Any) -> None:
    run(methods=["classic-raw", "random"])
    told = r"classic-raw seed 0 .* \(steps was 64, is 96\).*delete its rows.*another folder"
    with pytest.raises(ValueError, match=told):
        run(methods=["classic-raw"], steps=96)
    with pytest.raises(ValueError, match="ClassicSettings"):
        run(methods=["classic-raw"], classic=replace(SMALL, n_envs=2))
    with pytest.raises(ValueError, match="first prompt was"):
        run(settings(task=lmpolicy.GenericTask()), methods=["random"])
    run(methods=["random"], steps=96)  # random play is the same whatever is trained
    assert run.cells == []
    run(settings(learning_rate=(1e-3, 0.0)), methods=["classic-raw"])  # of the language model alone
    assert run.cells == []


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ({"env": settings(Side)}, {"env": settings(Counting)}, "env_id was .*Side.*, is .*Counting"),
        ({"env": "CartPole-v1"}, {"env": "CartPole-v0"}, "env_id was 'CartPole-v1', is 'CartPole-v0'"),
        (
            {"env": "CartPole-v1"},
            {"env": "CartPole-v1", "env_kwargs": {"sutton_barto_reward": True}},
            r"env_kwargs was {}, is {'sutton_barto_reward': True}",
        ),
        (
            {"env": "CartPole-v1"},
            {"env": "CartPole-v1", "evaluation_kwargs": {"sutton_barto_reward": True}},
            "evaluation_kwargs was not set, is",
        ),
        ({"env": "CartPole-v1", "success": True}, {"env": "CartPole-v1"}, "success was True, is not set"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*CartPole-v0 is out of date")
def test_a_folder_is_of_one_env(run: Any, before: Any, now: Any, told: str, tmp_path: Path) -> None:
    run(methods=["random"], **before)
    rows = (tmp_path / "found" / "runs.csv").read_bytes()
    for methods in (["lm-frozen"], ["random"]):
        with pytest.raises(ValueError, match=rf"results of random .*\(.*{told}.*Name another folder.*--output.*delete"):
            run(methods=methods, **now)
    assert run.cells == []
    assert (tmp_path / "found" / "runs.csv").read_bytes() == rows


def test_evaluations_of_fewer_episodes_are_noted_and_a_module_before_the_id_is_no_other_env(
    run: Any, tmp_path: Path
) -> None:
    run("CartPole-v1", methods=["random"])
    run("gymnasium.envs:CartPole-v1", methods=["lm-frozen"], episodes=3)
    assert "Episodes of an evaluation: 3 or 4." in (tmp_path / "found" / "table.md").read_text()


def test_a_folder_that_held_two_envs_before_is_not_reported(run: Any, tmp_path: Path) -> None:
    run("CartPole-v1", methods=["random"])
    known = tmp_path / "found" / "settings.json"
    known.write_text(known.read_text().replace("CartPole-v1", "Acrobot-v1"))
    with pytest.raises(ValueError, match=r"results of random .*\(env_id was 'Acrobot-v1', is 'CartPole-v1'\)"):
        run("CartPole-v1", methods=["random"])


def test_an_env_that_ignores_its_seed_is_known_again(run: Any) -> None:
    methods = ["classic-words", "random"]
    run(settings(Unseeded), methods=methods, keep_models=True)
    found = run(settings(Unseeded), methods=methods)
    assert run.cells == []
    assert found.model_env("classic-words", 0).num_envs == 4
    run(settings(Unseeded), methods=["random"], seeds=[1])
    assert run.cells == ["Unseeded random seed 1"]


@pytest.mark.parametrize(("env", "place"), [(Side, "right, 2.5"), (Counting, "right, 1.0"), (Unseeded, None)])
def test_the_first_prompt_tells_settings_where_the_seed_decides_about_it(env: Any, place: str | None) -> None:
    prompt = EnvFacts.of(Experiment(settings=settings(env), name="Side")).prompt
    assert f"It lies {place} m away." in prompt if place else prompt == ""


def test_results_of_code_that_was_edited_are_not_handed_out(run: Any) -> None:
    def rule(action: int) -> Any:
        class Rule:
            def predict(self, observation: Any, state: Any = None, **_: Any) -> Any:
                return np.full(len(observation), action), state

        return lambda env, seed: Rule()

    run(methods=["right"], players={"right": rule(1)})
    run(methods=["right"], players={"right": rule(1)})
    assert run.cells == []
    with pytest.raises(ValueError, match=r"right seed 0 .* \(player was .*, is .*another folder"):
        run(methods=["right"], players={"right": rule(0)})


def test_a_seed_of_other_settings_does_not_stand_beside_the_others(run: Any, tmp_path: Path) -> None:
    """A mean over seeds is one of the same budget, evaluations and settings."""
    run(methods=["classic-raw", "random"], seeds=[0, 1])
    before = (tmp_path / "found" / "runs.csv").read_bytes()
    told = r"classic-raw seed 2 .* beside seeds 0, 1, .* other settings \(steps was 64, is 96\).*another folder"
    with pytest.raises(ValueError, match=told):
        run(methods=["classic-raw"], seeds=[2], steps=96)
    with pytest.raises(ValueError, match=r"beside seeds 0, 1, .*\(every was 32, is 16\)"):
        run(methods=["random", "classic-raw"], seeds=[2], every=16)
    assert run.cells == []
    assert (tmp_path / "found" / "runs.csv").read_bytes() == before
    run(methods=["random"], seeds=[2], steps=96)
    run(methods=["classic-raw"], seeds=[2])
    assert run.cells == ["Side classic-raw seed 2"]


def test_a_model_of_other_files_does_not_stand_beside_the_others(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmpolicy.comparison import fingerprints

    monkeypatch.setattr(fingerprints, "describe_model", lambda name, random: "own 01234567")
    run(methods=["lm-frozen"])
    monkeypatch.setattr(fingerprints, "describe_model", lambda name, random: "own 89abcdef")
    told = r"\(model was 'own 01234567', is 'own 89abcdef'\)"
    for seed in (0, 1):
        with pytest.raises(ValueError, match=told):
            run(methods=["lm-frozen"], seeds=[seed])
    assert run.cells == []
