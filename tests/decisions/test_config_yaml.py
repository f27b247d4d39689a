"""The YAML is upstream's: 1.1 as go-yaml v2 resolves it. The table was compared with Go 1.26."""

import pytest

from localvolume.config.model import Problem
from localvolume.config.syntax import document, readers
from localvolume.config.syntax.document import Unreadable, compose


def read_text(yaml: str) -> tuple[str | None, list[Problem]]:
    node = compose(yaml)
    assert node is not None
    place = readers.Place("file", "key")
    return readers.text(node, place), place.problems


@pytest.mark.parametrize(
    "word",
    [
        "y",
        "Y",
        "yes",
        "Yes",
        "YES",
        "true",
        "True",
        "TRUE",
        "on",
        "On",
        "ON",
        "n",
        "N",
        "no",
        "No",
        "NO",
        "false",
        "False",
        "FALSE",
        "off",
        "Off",
        "OFF",
    ],
)
def test_booleans_of_yaml_1_1(word: str) -> None:
    node = compose(word)
    assert node is not None
    place = readers.Place("file", "key")
    means = word.lower() in ("y", "yes", "true", "on")
    assert readers.boolean(node, place) is means
    plain = str(means).lower()
    said = [f"'{word}' is read as {plain}, as YAML 1.1 has it: write {plain}"]
    assert [one.reason for one in place.warnings] == (said if word.lower() != plain else [])
    assert place.problems == []


@pytest.mark.parametrize("word", ["yEs", "tRUE", "oN", "1", "0", '"yes"', "'true'", "t"])
def test_other_words_are_no_booleans(word: str) -> None:
    node = compose(word)
    assert node is not None
    place = readers.Place("file", "key")
    assert readers.boolean(node, place) is None
    assert "true or false" in place.problems[0].reason


@pytest.mark.parametrize("value", ["1", "-12", "0", "1.5", "0.25", "-1.5", "true", "false"])
def test_bare_numbers_and_booleans_may_stand_for_text_where_upstream_reads_the_same(
    value: str,
) -> None:
    assert read_text(value) == (value, [])


@pytest.mark.parametrize(
    "value", ["1:30", "2001-01-01", "1,000", "12e", "=", "1.2.3", "yEs", "0b", "08x"]
)
def test_text_that_other_yaml_readers_take_for_something_else(value: str) -> None:
    assert read_text(value) == (value, [])


@pytest.mark.parametrize(
    "value", ["yes", "True", "010", "0x1F", "1_000", "1e3", "1.10", ".5", "+1", "-0", ".inf", "~"]
)
def test_what_upstream_would_read_as_another_text_must_be_quoted(value: str) -> None:
    text, problems = read_text(value)
    assert text is None
    assert len(problems) == 1
    assert "must be text" in problems[0].reason
    assert read_text(f'"{value}"') == (value, [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [1, 2", "line 2, column 1"),
        ("a: b: c", "line 1, column 5"),
        ("a: 1\n\tb: 2", "line 2: a tab where YAML wants spaces"),
        ("a:\n\tb: 2", "line 2: a tab where YAML wants spaces"),
        ("a:\r\n \tb: 2\r\n", "line 2: a tab where YAML wants spaces"),
        ("a: 1\nb:\n  - c\n\t- d", "line 4: a tab where YAML wants spaces"),
        # Between braces a tab is no fault; what is wrong is said.
        ("a: {\n\tb: 2]", "line 2, column 6: did not find"),
        ("*nowhere", "undefined alias"),
        ("a: 1\n---\nb: 2", "more than one YAML document"),
        ("\x07", "not valid YAML"),
        ("[" * 100_000, "levels deep"),
        ("- " * 100_000, "levels deep"),
    ],
)
def test_what_cannot_be_read_says_where(text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        compose(text)


def test_merge_keys_give_what_the_mapping_does_not_say_itself() -> None:
    node = compose("{<<: [{a: 1, b: 1}, {b: 2, c: 2, <<: {d: 3, a: 3}}], a: 0}")
    assert node is not None
    place = readers.Place("file", "")
    values = {key: readers.text(value, where) for key, value, where in readers.entries(node, place)}
    assert values == {"a": "0", "b": "1", "c": "2", "d": "3"}
    assert place.problems == []


def test_merging_a_text_is_no_trouble() -> None:
    place = readers.Place("file", "")
    wrong = compose("{<<: text, a: 1}")
    assert wrong is not None
    assert [key for key, _, _ in readers.entries(wrong, place)] == ["a"]
    assert "merge key" in place.problems[0].reason


def test_what_is_merged_twice_is_read_once() -> None:
    lines = ["a0: &a0 {k: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 10)]
    node = compose("\n".join(lines))
    assert node is not None
    last = node.value[-1][1]
    assert len(list(document.pairs(last))) == 1


def test_nothing_is_nothing() -> None:
    assert compose("") is None
    assert compose("# only a comment\n") is None
    assert document.is_null(compose("null"))
