"""Counting the commands of LVM, whoever runs them: what is first in PATH writes each down."""

from __future__ import annotations

import os
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from .support_kills import tool_of

_PROGRAMS = ("lvm", "dmsetup")
_SCRIPT = '#!/bin/sh\necho {name} "$@" >>{log}\nexec {real} "$@"\n'


class Counted:
    """All commands since it was made."""

    def __init__(self, directory: Path) -> None:
        self.programs = directory / "counted"
        self.programs.mkdir()
        self._log = directory / "commands"
        self._log.touch()
        for name in _PROGRAMS:
            real = shutil.which(name)
            assert real is not None
            script = self.programs / name
            words = {"name": name, "log": shlex.quote(str(self._log)), "real": shlex.quote(real)}
            script.write_text(_SCRIPT.format(**words))
            script.chmod(0o755)

    def of(self, act: Callable[[], object]) -> Counter[str]:
        """What `act` takes, by `tool_of`."""
        return Counter(self.in_order(act))

    def in_order(self, act: Callable[[], object]) -> list[str]:
        """As `of`, the first one first."""
        before = len(self._lines())
        act()
        return [tool_of(line.split()) for line in self._lines()[before:]]

    def _lines(self) -> list[str]:
        return self._log.read_text().splitlines()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counted:
    """Of what is started in this process from now on."""
    made = Counted(tmp_path)
    monkeypatch.setenv("PATH", f"{made.programs}:{os.environ['PATH']}")
    return made
