"""The code that makes pages of the site, as modules."""

from __future__ import annotations

import importlib
import sys

from helpers.source_code import ROOT

sys.path.append(str(ROOT / "docs" / "_generate"))
task_list = importlib.import_module("task_list")
task_tables = importlib.import_module("task_tables")
task_pages = importlib.import_module("task_pages")
picture = importlib.import_module("picture")
