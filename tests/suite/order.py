"""In which order tests run, and which of them stay together when several workers share them.

A file stays with one worker, and so does all that shares one real node. What takes longest comes
first, so that the workers end together; `--shuffle SEED` has files and their tests come in another
order, the same for the same seed.
"""

import random
from collections.abc import Generator
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

#: Directories whose tests share what takes long to make, a real node: the inner ones first.
_TOGETHER = ("tests/node/installed", "tests/node")
#: Directories whose tests have nothing in common: each brings up a guest of its own.
_APART = ("tests/kernel",)
#: What takes longest first, and before the many files of tests/cluster the few that bring up much
#: each; what is in none of them, the pure tests, comes last.
_FIRST = (
    *("tests/kernel", "tests/node", "tests/faults", "tests/monitoring", "tests/chart"),
    *("tests/image", "tests/release"),
    *("tests/contract", "tests/cluster", "tests/attacks", "tests/cli", "tests/host"),
)


def unit_of(nodeid: str) -> str:
    """What the test shares a worker with: its file, a directory, or nothing."""
    path = nodeid.partition("::")[0]
    if any(path.startswith(f"{one}/") for one in _APART):
        return nodeid
    return next((one for one in _TOGETHER if path.startswith(f"{one}/")), path)


def rank(path: str) -> int:
    """How early the tests of a file come, the lowest first."""
    return next((n for n, one in enumerate(_FIRST) if path.startswith(f"{one}/")), len(_FIRST))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", metavar="SEED", help="run files and tests in a random order")


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """One that hands out whole units, in the order of the collection."""
    # Else it hands out first what has the most tests: pure ones.
    config.option.loadscopereorder = False
    scheduling: Any = LoadScopeScheduling(config, log)
    scheduling._split_scope = unit_of
    return scheduling


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Reports go from worker to worker as UTF-8, which names of files need not be."""
    return encodable((yield))


def encodable(value: Any) -> Any:
    """The same, with what is no UTF-8 in it shown as such."""
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {key: encodable(one) for key, one in value.items()}
        case list():
            return [encodable(one) for one in value]
        case tuple():
            return tuple(encodable(one) for one in value)
    return value


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank(item.nodeid))
    if seed := config.getoption("--shuffle"):
        units: dict[str, list[pytest.Item]] = {}
        for item in items:
            units.setdefault(item.nodeid.partition("::")[0], []).append(item)
        chance = random.Random(seed)
        files = list(units.values())
        chance.shuffle(files)
        for file in files:
            chance.shuffle(file)
        items[:] = [item for file in files for item in file]
