"""Only the highest version is what readers of the site come to."""

from __future__ import annotations

import pytest

from release.site import commands, is_newest

DEPLOY = ("deploy", "--update-aliases", "--alias-type=copy")


@pytest.mark.parametrize(
    ("version", "there", "newest"),
    [
        ("1.0.0", [], True),
        ("1.3.0", ["1.2.4", "1.2.3"], True),
        ("1.2.5", ["1.3.0", "1.2.4"], False),
        ("1.10.0", ["1.9.0"], True),
        ("1.9.1", ["1.10.0"], False),
        ("2.0.0", ["1.99.99", "dev"], True),
        ("1.3.0", ["1.3.0", "1.2.5"], True),
    ],
)
def test_the_newest_is_the_highest_and_not_the_last(
    version: str, there: list[str], newest: bool
) -> None:
    assert is_newest(version, there) is newest


@pytest.mark.parametrize("odd", ["1.2", "v1.2.3", "1.2.3rc1", ""])
def test_what_is_no_version_has_no_site(odd: str) -> None:
    with pytest.raises(ValueError, match="three numbers"):
        is_newest(odd, [])


def test_a_fix_of_an_older_line_takes_no_alias() -> None:
    assert commands("1.2.5", ["1.3.0"]) == [[*DEPLOY, "1.2.5"]]
    assert commands("1.3.1", ["1.3.0"]) == [
        [*DEPLOY, "1.3.1", "latest"],
        ["set-default", "latest"],
    ]
