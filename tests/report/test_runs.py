"""What is read of the folder of a run: the log of Stable-Baselines3, episodes, and the same prompts."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.policy_tools import corridor, ppo
from helpers.shown_runs import episode, turn, write_run
from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure

from lmpolicy import WatchLearning
from lmpolicy.report.curves import MOST_POINTS, Curve, read_curves
from lmpolicy.report.episodes import Episodes
from lmpolicy.report.runs import read_runs
from lmpolicy.training.turns import write_turns

FORMATS = {"tensorboard": "tensorboard", "progress.csv": "csv"}


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_every_value_that_was_logged(tmp_path: Path, form: str) -> None:
    logger = configure(str(tmp_path / "log"), [form])
    for step in (16, 32, 48):
        logger.record("rollout/ep_rew_mean", step / 3)
        logger.record("time/total_timesteps", step)
        logger.record("train/loss", float("nan") if step == 32 else 0.5)
        if step == 48:
            logger.record("late", 1)
            logger.record("text", "words", exclude="tensorboard")
        logger.dump(step)
    logger.close()
    curves = read_curves(tmp_path)
    assert curves["rollout/ep_rew_mean"].steps == (16, 32, 48)
    assert curves["rollout/ep_rew_mean"].values == pytest.approx((16 / 3, 32 / 3, 16), rel=1e-4)
    assert curves["train/loss"] == Curve((16, 48), (0.5, 0.5))
    assert curves["late"] == Curve((48,), (1.0,))
    assert "text" not in curves


def test_a_resumed_run_goes_on(tmp_path: Path) -> None:
    for steps in ((8, 16, 24), (16, 24, 32)):  # the second begins at a checkpoint before the end of the first
        logger = configure(str(tmp_path), ["tensorboard", "csv"])
        for step in steps:
            logger.record("value", float(step if steps[0] == 8 else -step))
            logger.dump(step)
        logger.close()
    assert read_curves(tmp_path)["value"] == Curve((8, 16, 24, 32), (8.0, -16.0, -24.0, -32.0))


def test_a_run_that_is_resumed_with_another_logger_goes_on(tmp_path: Path) -> None:
    for steps, form in (((8, 16, 24), "csv"), ((24, 32), "tensorboard")):
        logger = configure(str(tmp_path), [form])
        for step in steps:
            logger.record("time/total_timesteps", step)
            logger.record("value", float(step if form == "csv" else -step))
            logger.dump(step)
        logger.close()
    assert read_curves(tmp_path)["value"] == Curve((8, 16, 24, 32), (8.0, 16.0, -24.0, -32.0))


def test_what_was_logged_last_counts_whatever_its_file_is_called(tmp_path: Path) -> None:
    for value, name in ((1.0, "events.out.tfevents.1.9"), (2.0, "events.out.tfevents.1.10")):
        logger = configure(str(tmp_path / name), ["tensorboard"])
        logger.record("value", value)
        logger.dump(8)
        logger.close()
        (written,) = (tmp_path / name).iterdir()
        written.rename(tmp_path / "moved")
        (tmp_path / name).rmdir()
        (tmp_path / "moved").rename(tmp_path / name)
    assert read_curves(tmp_path)["value"] == Curve((8,), (2.0,))


def test_long_curves_are_thinned(tmp_path: Path) -> None:
    lines = ["time/total_timesteps,x", *(f"{step},{step}" for step in range(5000))]
    (tmp_path / "progress.csv").write_text("\n".join(lines) + "\n6000,60")  # a line that is not finished
    curve = read_curves(tmp_path)["x"]
    assert len(curve.steps) == MOST_POINTS
    assert (curve.steps[0], curve.steps[-1]) == (0, 4999)
    assert list(curve.values) == list(curve.steps) == sorted(set(curve.steps))


def test_logs_of_several_trainings_are_not_mixed(tmp_path: Path) -> None:
    for name in ("PPO_1", "PPO_2"):
        write_run(tmp_path / name, [episode(2)])
    with pytest.raises(ValueError, match=r"logs of 2 trainings: name one of .*PPO_1, .*PPO_2"):
        read_runs(tmp_path)


def test_what_a_training_leaves(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, corridor(), tensorboard_log=str(tmp_path))
    model.learn(64, callback=WatchLearning(every=2, n_prompts=2))
    (run,) = read_runs(tmp_path)
    assert {"lm/entropy", "train/approx_kl", "train/value_loss", "time/env_steps_per_second"} <= set(run.curves)
    assert run.name == tmp_path.name
    assert len(run.episodes) >= 2
    assert [turns[0].env_step for turns in run.episodes] == sorted(turns[0].env_step for turns in run.episodes)
    assert [[said.env_step for said in one] for one in run.prompts] == [[0, 16, 32, 48, 64]] * 2
    assert len({turn.messages[-1]["content"] for turn in run.prompts[0]}) == 1


def test_a_classic_run_has_curves_alone(tmp_path: Path) -> None:
    PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu", tensorboard_log=str(tmp_path)).learn(64)
    (run,) = read_runs({"classic": tmp_path})
    assert "train/approx_kl" in run.curves
    assert (run.name, list(run.episodes), list(run.prompts)) == ("classic", [], [])


def test_names_of_runs(tmp_path: Path) -> None:
    one = write_run(tmp_path / "lake" / "1", [episode(2)])
    two = write_run(tmp_path / "lake" / "2", [episode(2)])
    assert [run.name for run in read_runs([one, str(two)])] == ["lake/1", "lake/2"]
    assert [run.name for run in read_runs([one, one])] == ["1: lake/1", "2: lake/1"]
    assert [run.name for run in read_runs({"a": one, "b": Episodes([episode(1)])})] == ["a", "b"]
    assert [run.name for run in read_runs(one / "episodes.jsonl")] == ["1/episodes.jsonl"]


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="name the folder of a run"):
        read_runs(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"no log and no episodes. Train with tensorboard_log= .*WatchLearning"):
        read_runs(tmp_path)
    with pytest.raises(ValueError, match="name the folder of at least one"):
        read_runs([])
    write_turns(tmp_path / "prompts.jsonl", [turn(0, turn=None)])
    with pytest.raises(ValueError, match="a line has no number of the prompt"):
        read_runs(tmp_path)


def test_what_was_said_twice_counts_once(tmp_path: Path) -> None:
    run = write_run(tmp_path, [episode(1)])
    write_turns(run / "prompts.jsonl", [turn(0, env_step=1000, value=9.0)])
    (found,) = read_runs(run)
    assert [said.env_step for said in found.prompts[0]] == [0, 1000, 2000]
    assert found.prompts[0][1].value == 9.0


def test_a_file_without_episodes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(ValueError, match=r"empty\.jsonl has no episodes: .*record_episodes"):
        read_runs(tmp_path / "empty.jsonl")
