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
from tests.kernel.support_guest import INSIDE
from tests.suite import measured

#: In a guest there is what one needs on the machine.
_ALL_NEED = ("guest",) if INSIDE in os.environ else ()
#: They start what follows them.
_BEFORE = frozenset({"env", "ionice", "nice", "setpriv", "unshare"})
#: By `setpriv --pdeathsig KILL --` the product starts all of its commands, where it is there.
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
            needs = {*capabilities.needs_of(item), *_ALL_NEED}
            named = capabilities.programs_of(needs) | self._required
            if report.passed and (unnamed := self._started - named):
                report.outcome = "failed"
                report.longrepr = f"{item.nodeid} starts what it does not need(): {sorted(unnamed)}"
        return report


def programs_in(argv: Sequence[Word], environment: Mapping[Any, Any] | None = None) -> set[str]:
    """Those programs of programs.txt, and of this machine, that a command line starts."""
    words = [os.fsdecode(word) for word in argv]
    if _OURS in words:
        words = words[words.index("--") + 1 :]
    if os.path.basename(words[0]) not in _BEFORE:
        words = words[:1]
    if "sh" in words:
        # What follows is a text, and may be of another root.
        words = words[: words.index("sh")]
    path = os.pathsep.join(os.get_exec_path(environment))
    named = ((word, os.path.basename(word)) for word in words)
    return {name for word, name in named if name in _places() and _is_it(word, name, path)}


def _is_it(word: str, name: str, path: str) -> bool:
    """Whether it is the machine's, and no test's imitation of it nor a word that ends like it."""
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
    # A hook in Python lets other threads run while one installs its trace function, and CPython
    # 3.11 then refuses theirs.
    if measured.directory() is None:
        sys.addaudithook(_seen.audit)
    config.pluginmanager.register(_seen, "localvolume-programs")
