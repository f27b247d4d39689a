"""Where a run's time went: read from its JUnit reports, by directory, and the dearest tests."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_DEAREST = 20
#: What runs in guests is a part of the tests that bring them up.
_WITHIN = "tests/kernel/inside"


@dataclass(frozen=True)
class Cost:
    """One test, or the sum of several: seconds on the clock by phase, and of the processors."""

    name: str
    tests: int
    setup: float
    call: float
    teardown: float
    processor: float

    @property
    def seconds(self) -> float:
        return self.setup + self.call + self.teardown

    @property
    def directory(self) -> str:
        return self.name.partition("::")[0].rpartition("/")[0]


def read(report: Path) -> Iterator[Cost]:
    """Of each test with costs (costs.py) in a JUnit report; of a broken report, none."""
    try:
        root = ET.parse(report).getroot()
    except (OSError, ET.ParseError):
        return
    for case in root.iter("testcase"):
        noted = {one.get("name"): one.get("value") for one in case.iter("property")}
        phases = [noted.get(f"{phase}_seconds") for phase in ("setup", "call", "teardown")]
        name = nodeid(case.get("classname", ""), case.get("name", ""))
        processor = noted.get("processor_seconds")
        if processor is not None:
            setup, call, teardown = (float(phase or 0) for phase in phases)
            yield Cost(name, 1, setup, call, teardown, float(processor))


def nodeid(classname: str, test: str) -> str:
    """As pytest names it, of what it writes to a report: `tests.host.test_a.TestB`, `test_c`."""
    parts = classname.split(".")
    file = next((n for n, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1)
    return "::".join([f"{'/'.join(parts[: file + 1])}.py", *parts[file + 1 :], test])


def _sum(name: str, costs: Iterable[Cost]) -> Cost:
    all_of_them = list(costs)
    return Cost(
        name,
        len(all_of_them),
        *(
            sum(getattr(cost, field) for cost in all_of_them)
            for field in ("setup", "call", "teardown", "processor")
        ),
    )


def table(costs: Iterable[Cost]) -> str:
    """Both tables, as lines of text."""
    each = list(costs)
    directories = {cost.directory for cost in each}
    sums = [_sum(name, (cost for cost in each if cost.directory == name)) for name in directories]
    sums.sort(key=lambda cost: cost.seconds, reverse=True)
    dearest = sorted(each, key=lambda cost: cost.seconds, reverse=True)[:_DEAREST]
    head = f"{'set-up':>9}{'call':>9}{'teardown':>9}{'processor':>10}"
    lines = [f"{'tests':>6}{head}  seconds, by directory"]
    whole = _sum("all", (cost for cost in each if cost.directory != _WITHIN))
    lines += [f"{cost.tests:6}{_row(cost)}  {cost.name}" for cost in [*sums, whole]]
    lines += ["", f"{'':6}{head}  seconds of the {len(dearest)} dearest tests"]
    lines += [f"{'':6}{_row(cost)}  {cost.name}" for cost in dearest]
    return "\n".join(lines)


def _row(cost: Cost) -> str:
    return f"{cost.setup:9.1f}{cost.call:9.1f}{cost.teardown:9.1f}{cost.processor:10.1f}"
