"""The picture of the README is what the file of results says."""

from __future__ import annotations

from xml.etree import ElementTree

from helpers.docs_code import picture

REMEDY = "write it anew: make pages"


def texts(drawn: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(drawn).iter() if one.tag.endswith("}text")]


def test_the_picture_is_up_to_date() -> None:
    drawn = picture.PICTURE.read_text()
    assert drawn == picture.draw(picture.SOURCE.read_text()), REMEDY
    assert len(drawn) < 150_000


def test_words_and_probabilities_are_those_of_the_file() -> None:
    (_, before), (heading, after) = picture.read(picture.SOURCE.read_text())
    assert heading.startswith("after ")
    shown = texts(picture.draw(picture.SOURCE.read_text()))
    for index in picture.STATES:
        assert before[index][0] == after[index][0]
        assert before[index][0] in " ".join(shown)
        for _, probabilities in (before[index], after[index]):
            assert sum(probabilities.values()) in (0.99, 1.0, 1.01)
            assert {f"{one:.2f}" for one in probabilities.values()} <= set(shown)


def test_what_changes_in_the_file_changes_the_picture() -> None:
    text = picture.SOURCE.read_text()
    assert "7 < 8" not in text
    hostile = text.replace("Pole leans right 1.7 degrees", "<script> Pole leans right 88.0 degrees & 7 < 8")
    drawn = picture.draw(hostile)
    assert drawn != picture.draw(text)
    assert "script" not in {one.tag.rpartition("}")[2] for one in ElementTree.fromstring(drawn).iter()}
    assert "<script>" in " ".join(texts(drawn))
