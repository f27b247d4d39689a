"""Which provisioners the controller serves: ours always, others only where it is said."""

from __future__ import annotations

import argparse

import pytest

from localvolume.cli.controller import options_of
from localvolume.config.flags.controller import CONTROLLER_FLAGS
from localvolume.config.flags.table import add_flags
from localvolume.controller.model import Policy
from localvolume.volumes.marks import OURS
from tests.suite.names import KUTTI, LOCAL_PATH, OPENEBS


def read(*words: str) -> Policy:
    parser = argparse.ArgumentParser()
    add_flags(parser, *CONTROLLER_FLAGS)
    return options_of(parser.parse_args(list(words)), {}).policy


def test_none_but_ours_unless_said() -> None:
    """Whatever it replaces may be running still."""
    assert read().provisioners == OURS == {"csi.localvolume.dev", "dynamic.localvolume.dev"}


def test_those_that_are_named() -> None:
    policy = read(
        f"--dynamic-provisioners={LOCAL_PATH}, {OPENEBS},", "--dynamic-provisioners", KUTTI
    )
    assert policy.provisioners == OURS | {LOCAL_PATH, OPENEBS, KUTTI}


@pytest.mark.parametrize("name", ["a b", "example.com/", "/x", "a/b/c", "x" * 64, "Ex_ample/x"])
def test_what_is_no_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read(f"--dynamic-provisioners={name}")
    assert f"{name!r} is no name of a provisioner" in capsys.readouterr().err
