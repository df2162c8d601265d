"""Settings of the site: ``make docs``, or ``python -m sphinx -W --keep-going -b html docs docs/_build/html``."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # describe this source tree, also where another version is installed

import lmpolicy  # noqa: E402  # after the path

project = "lmpolicy"
author = "the lmpolicy contributors"
project_copyright = f"2026, {author}"
version = release = lmpolicy.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"lmpolicy {version}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_theme_options = {"navigation_with_keys": True}

myst_enable_extensions = ["colon_fence", "deflist", "tasklist"]
myst_heading_anchors = 3
suppress_warnings = [
    "myst.header",  # the model card and the changelog are pages of their own elsewhere
]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True

nitpicky = True
nitpick_ignore_regex = [
    # Names of other packages: their sites are not asked, so that the site is built without a network.
    (r"py:.*", r"(gym|gymnasium|spaces|np|numpy|NDArray|torch|th|nn|peft|stable_baselines3|transformers)(\..*)?"),
    (r"py:.*", r"(collections|typing|pathlib|copy)\..*"),
    (r"py:.*", r"(Any|BaseCallback|Callable|Distribution|Mapping|Monitor|Path|PyTorchObs|RecordConstructorArgs)"),
    (r"py:.*", r"(Schedule|Self|Sequence|VecEnv|VecEnvObs|VecEnvStepReturn|VecEnvWrapper|ActorCriticPolicy)"),
    (r"py:.*", r"(OnPolicyAlgorithm|Names|Opponent|Units|WordEncoder)"),
    # The inside of the package: see the page on architecture, which speaks of it in prose.
    (r"py:.*", r"lmpolicy\.(lm|bundled|pretraining)\..*"),
    (r"py:.*", r"lmpolicy\.models\.(checks|converting|errors|names|progress|resolving)\..*"),
    (r"py:.*", r"(dataclasses\.(replace|InitVar)|tokenizer_fingerprint|check_phrases|Box|PolicySettings|Backbone)"),
    (r"py:.*", r"lmpolicy\.text\.(?!parsing|prompt|spaces|task)\w+\..*"),
    (r"py:.*", r"lmpolicy\.training\.settings\.env_settings\.EnvSettings"),
    (r"py:.*", r"lmpolicy\.training\.imitation\.(playing\.Predictor|demonstrations\.T)"),
]
