"""A test names in `needs` each program of programs.txt that it starts: else it fails.

A plugin of pytest's. Without it a test that forgot one would pass on a machine that has everything,
and fail on one that has not. What the test's own process starts is seen, whoever starts it there:
the test, its fixtures, our product. What other processes start is not.
"""

import functools
import os
import shutil
import sys
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import pytest

from tests import capabilities

#: They start what follows them.
_BEFORE = frozenset({"env", "ionice", "nice", "setpriv", "unshare"})
#: By this the product starts all of its commands, where there is a setpriv.
_OURS = "--pdeathsig"

Word = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class Programs:
    """Which programs the test under way has started, and which of them it may start."""

    def __init__(self) -> None:
        self._started: set[str] = set()
        self._required: set[str] = set()
        self._within = False

    def require(self, program: str) -> None:
        """Skip the test under way where there is no such program; else it may start it."""
        self._required.add(program)
        if (reason := capabilities.lacking(program)) is not None:
            pytest.skip(reason)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """See sys.addaudithook."""
        if event == "subprocess.Popen":
            _, argv, _, environment = arguments
        elif event == "os.posix_spawn":
            _, argv, environment = arguments
        else:
            return
        if self._within:
            self._started |= programs_in(argv, environment)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._started.clear()
        self._required.clear()
        self._within = True
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "call":
            # The last test of a module or a run tears down what is not its own.
            self._within = False
            named = capabilities.programs_of(capabilities.needs_of(item)) | self._required
            if report.passed and (unnamed := self._started - named):
                report.outcome = "failed"
                report.longrepr = f"{item.nodeid} starts what it does not need(): {sorted(unnamed)}"
        return report


def programs_in(argv: Sequence[Word], environment: Mapping[Any, Any] | None = None) -> set[str]:
    """Those programs of programs.txt, and of this machine, that a command line starts."""
    words = [os.fsdecode(word) for word in argv]
    path = os.pathsep.join(os.get_exec_path(environment))
    found = set()
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name = os.path.basename(word)
        if name in _places() and following != _OURS and _is_the_machines(word, name, path):
            found.add(name)
        if word is words[0] and name not in _BEFORE:
            break
    return found


def _is_the_machines(word: str, name: str, path: str) -> bool:
    """Not a test's own imitation of it, nor a word that only ends like it."""
    place = _places()[name]
    found = shutil.which(name, path=path) if word == name else word
    return found == place if place else word == name


@functools.cache
def _places() -> dict[str, str | None]:
    """Where this machine has each of the programs, before any test puts its own in front."""
    return {name: shutil.which(name) for name in capabilities.packages()}


_seen = Programs()
require = _seen.require


def pytest_configure(config: pytest.Config) -> None:
    _places()
    sys.addaudithook(_seen.audit)
    config.pluginmanager.register(_seen, "localvolume-programs")
