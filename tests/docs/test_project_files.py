"""The files that other tools read: the citation, and the forms for new issues."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def test_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)  # what the format requires
    assert str(citation["version"]) == project["version"]
    assert citation["license"] == project["license"]
    assert all("name" in author or "family-names" in author for author in citation["authors"])


@pytest.mark.parametrize("form", [form for form in FORMS if form.name != "config.yml"], ids=lambda form: form.stem)
def test_issue_form(form: Path) -> None:
    """What GitHub demands of a form; it would show none at all otherwise."""
    content = yaml.safe_load(form.read_text())
    assert content["name"]
    assert content["description"]
    fields = content["body"]
    names = [field["id"] for field in fields if field["type"] != "markdown"]
    assert len(set(names)) == len(names) >= 1
    assert {field["type"] for field in fields} <= {"markdown", "input", "textarea", "dropdown", "checkboxes"}
    assert all(field["attributes"]["label"] for field in fields if field["type"] != "markdown")
