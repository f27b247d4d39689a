"""What a run could not test: each thing that the machine lacks once, and the command that adds it.

Of this process's own reports, or of the JUnit reports of several (__main__.py).
"""

import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests import capabilities
from tests.suite.table import nodeid

#: The property of a skipped test, and of its JUnit report, that names one thing it lacks.
LACKING = "lacking"
#: Where the processes of one run of the suite leave their reports.
RESULTS = "LOCALVOLUME_TEST_RESULTS"
TITLE = "Not tested on this machine, and why"
_FILES = 3


def read(report: Path) -> Iterator[tuple[str, str]]:
    """What is lacking, and for which test, of a JUnit report; of a broken report, nothing."""
    try:
        root = ET.parse(report).getroot()
    except (OSError, ET.ParseError):
        return
    for case in root.iter("testcase"):
        if (skipped := case.find("skipped")) is None or skipped.get("type") != "pytest.skip":
            continue
        name = nodeid(case.get("classname", ""), case.get("name", ""))
        told = [one.get("value", "") for one in case.iter("property") if one.get("name") == LACKING]
        for reason in told or [skipped.get("message", "")]:
            yield reason, name


def told(lacking: Iterable[tuple[str, str]]) -> list[str]:
    """The lines that say it, none where nothing is lacking."""
    tests: defaultdict[str, set[str]] = defaultdict(set)
    for reason, name in lacking:
        tests[reason].add(name)
    lines = []
    for reason, names in sorted(tests.items()):
        files = sorted({name.partition("::")[0] for name in names})
        if len(files) > _FILES:
            files = sorted({name.rpartition("/")[0] for name in files})
        count = "1 test" if len(names) == 1 else f"{len(names)} tests"
        lines.append(f"{count} ({', '.join(files)}): {reason}")
    if command := capabilities.remedy(tests):
        lines.append(f"Most of it is tested after: {command}")
    return lines
