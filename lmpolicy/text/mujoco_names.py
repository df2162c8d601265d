"""Read the names of joints and bodies from a MuJoCo model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

_FREE, _BALL, _SLIDE, _HINGE = range(4)
"""Kinds of joints, as MuJoCo numbers them."""
_AXES = "xyz"
_QUATERNION = ("turn w", "turn x", "turn y", "turn z")
_CONTACT = ("torque x", "torque y", "torque z", "force x", "force y", "force z")
_MEANINGLESS = frozenset({"slide", "slider", "hinge"})
"""Names of joints that only say which kind of joint it is."""
_SHOWN: Mapping[str, Mapping[str, Sequence[str]]] = {
    "InvertedDoublePendulumEnv": {
        "position": ("{0}",),
        "sines": ("{1}", "{2}"),
        "cosines": ("{1}", "{2}"),
        "speeds": ("{0}", "{1}", "{2}"),
        "constraint force": ("{0}",),
    },
    "ReacherEnv": {
        "cosines": ("{0}", "{1}"),
        "sines": ("{0}", "{1}"),
        "target": ("x", "y"),
        "speeds": ("{0}", "{1}"),
        "fingertip from target": ("x", "y"),
    },
    "PusherEnv": {
        "positions": tuple(f"{{{joint}}}" for joint in range(7)),
        "speeds": tuple(f"{{{joint}}}" for joint in range(7)),
        **dict.fromkeys(("fingertip", "object", "goal"), ("x", "y", "z")),
    },
}
"""What those envs show that have no ``observation_structure``, as their documentation says; ``{0}`` is a joint."""
_UNITS = {"positions": "m or rad", "speeds": "m/s or rad/s", "contact forces": "N or Nm"}


def actuator_names(env: gym.Env) -> list[str] | None:
    """Name the actuators of a MuJoCo env by the joints that they move.

    :param env: an unwrapped env.
    :return: one name for each; ``None`` if this is no MuJoCo env, or an actuator moves something else.
    """
    model = _model(env)
    if model is None:
        return None
    joints = joint_names(model)
    moved = [int(model.actuator_trnid[index, 0]) for index in range(model.nu)]
    of_joints = all(int(kind) == 0 for kind in model.actuator_trntype)
    return [joints[joint] for joint in moved] if moved and of_joints else None


def observation_names(env: gym.Env) -> tuple[dict[str, list[str]], dict[str, str]] | None:
    """Name the numbers that a MuJoCo env of Gymnasium shows.

    The env says in ``observation_structure`` which numbers of the simulation it shows. Three envs do not say it.

    :param env: an unwrapped env.
    :return: names of the positions, speeds and contact forces, and the units of each; ``None`` if this is no such env,
        or shows something else.
    """
    model, structure = _model(env), getattr(env, "observation_structure", None)
    if model is not None and type(env).__name__ in _SHOWN:
        return _of_table(env, joint_names(model))
    if model is None or not isinstance(structure, Mapping):
        return None
    shown = {key: int(size) for key, size in structure.items() if int(size)}
    skipped = shown.pop("skipped_qpos", 0)
    if not {*shown} <= {"qpos", "qvel", "cfrc_ext"}:
        return None
    names: dict[str, list[str]] = {"positions": [], "speeds": []}
    for joint, name in enumerate(joint_names(model)):
        kind = int(model.jnt_type[joint])
        if kind in (_SLIDE, _HINGE):
            names["positions"].append(name)
            names["speeds"].append(name)
            continue
        place = [f"{name} {axis}" for axis in _AXES] if kind == _FREE else []
        names["positions"] += [*place, *(f"{name} {part}" for part in _QUATERNION)]
        names["speeds"] += [*place, *(f"{name} {part}" for part in _QUATERNION[1:])]
    names["positions"] = names["positions"][skipped:]
    bodies = _distinct([model.body(body).name or f"body {body}" for body in range(1, model.nbody)])
    if "cfrc_ext" in shown:
        names["contact forces"] = [f"{body} {part}" for body in bodies for part in _CONTACT]
    sizes = [shown.get(key, 0) for key in ("qpos", "qvel", "cfrc_ext")]
    if sizes[: len(names)] != [len(group) for group in names.values()]:
        return None
    return names, {title: _UNITS[title] for title in names}


def _of_table(env: gym.Env, joints: list[str]) -> tuple[dict[str, list[str]], dict[str, str]] | None:
    """Name the numbers of an env that does not say what it shows."""
    names = {title: [name.format(*joints) for name in group] for title, group in _SHOWN[type(env).__name__].items()}
    shape = env.observation_space.shape
    fits = shape is not None and shape == (sum(map(len, names.values())),)  # older versions show other numbers
    return (names, {}) if fits else None


def joint_names(model: Any) -> list[str]:
    """Name the joints of a model in words.

    A joint is called by its own name, or by its body where its name only says that it is a slide or a hinge. Of several
    joints of one body, a slide is called by the body and its axis, and a hinge by the body and "angle". A free joint is
    called by its body.

    Example:
        ``rootx``, ``rootz``, ``rooty`` and ``thigh_joint`` of the hopper are called "torso x", "torso z", "torso angle"
        and "thigh".

    :param model: a MuJoCo model.
    """
    joints_of = Counter(int(body) for body in model.jnt_bodyid)
    names = []
    for joint in range(model.njnt):
        kind, body = int(model.jnt_type[joint]), int(model.jnt_bodyid[joint])
        of_body, own = model.body(body).name, _plain(model.joint(joint).name)
        name = own or f"joint {joint}"
        if of_body and (kind == _FREE or (joints_of[body] == 1 and own.rstrip("0123456789") in _MEANINGLESS)):
            name = of_body
        elif of_body and joints_of[body] > 1 and kind == _SLIDE:
            axis = [index for index, part in enumerate(model.jnt_axis[joint]) if abs(float(part)) > 0.99]
            name = f"{of_body} {_AXES[axis[0]]}" if axis else name
        elif of_body and joints_of[body] > 1 and kind == _HINGE:
            name = f"{of_body} angle"
        names.append(_plain(name))
    if len(set(names)) < len(names):
        names = [_plain(model.joint(joint).name) or f"joint {joint}" for joint in range(model.njnt)]
    return _distinct(names)


def _model(env: gym.Env) -> Any:
    """Return the MuJoCo model of an env, or ``None``."""
    model = getattr(env, "model", None)
    return model if type(model).__module__.partition(".")[0] == "mujoco" else None


def _plain(name: str) -> str:
    """Write a name without underscores, and without the word "joint" at its end."""
    words = name.replace("_", " ").split()
    return " ".join(words[:-1] if len(words) > 1 and words[-1] == "joint" else words)


def _distinct(names: list[str]) -> list[str]:
    """Number those names that occur more than once."""
    counts = Counter(names)
    return [f"{name} {index}" if counts[name] > 1 else name for index, name in enumerate(names)]
