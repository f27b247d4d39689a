"""Which provisioners the controller serves: ours always, others only where it is said."""

from __future__ import annotations

import argparse

import pytest

from localvolume.cli.controller import _options
from localvolume.config.controller_flags import ControllerFlags, add_controller_flags
from tests.decisions.support_routing import OURS
from tests.suite.names import KUTTI, LOCAL_PATH, OPENEBS


def read(*words: str) -> ControllerFlags:
    parser = argparse.ArgumentParser()
    add_controller_flags(parser)
    return ControllerFlags.read(parser.parse_args(list(words)), {})


def test_none_but_ours_unless_said() -> None:
    """Whatever it replaces may be running still."""
    assert read().dynamic_provisioners == {OURS}
    assert _options(read()).policy.provisioners == {OURS}


def test_those_that_are_named() -> None:
    flags = read(
        f"--dynamic-provisioners={LOCAL_PATH}, {OPENEBS},", "--dynamic-provisioners", KUTTI
    )
    wanted = {OURS, LOCAL_PATH, OPENEBS, KUTTI}
    assert flags.dynamic_provisioners == wanted
    assert _options(flags).policy.provisioners == wanted


@pytest.mark.parametrize("name", ["a b", "example.com/", "/x", "a/b/c", "x" * 64, "Ex_ample/x"])
def test_what_is_no_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read(f"--dynamic-provisioners={name}")
    assert f"{name!r} is no name of a provisioner" in capsys.readouterr().err
