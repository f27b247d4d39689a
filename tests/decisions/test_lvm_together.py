"""Which Linux lets LVM cut volumes that are frozen for a group of snapshots."""

import pytest

from localvolume.backends.lvm.together import why_not


@pytest.mark.parametrize("release", ["6.8.0-49-generic", "6.12.9+deb13-amd64", "6.8", "7.2.7"])
def test_since_6_8_it_can(release: str) -> None:
    assert why_not(release) == ""


@pytest.mark.parametrize("release", ["6.7.12", "6.1.0-37-amd64", "5.14.0-503.el9", "", "next"])
def test_an_older_one_or_one_that_nobody_knows_is_refused(release: str) -> None:
    assert f"takes Linux 6.8 or later, and this is {release}" in why_not(release)
