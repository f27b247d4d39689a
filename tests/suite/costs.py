"""What each test costs: seconds of its set-up, call and teardown, and of the processors.

A plugin of pytest's. The figures are properties of the test in the JUnit report, so they come
from every process that runs tests, the guest's too; table.py reads them there.
"""

import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest

#: As proc(5) counts utime and stime.
_TICKS = os.sysconf("SC_CLK_TCK")
_SHORT_SECONDS = 0.05


def processor_seconds() -> float:
    """Of this process and all that came from it, those that have ended included.

    Of a tree of processes there is no such sum but by cgroup, which not everybody may make. psutil
    would look at every process of the machine for it, three times a test.
    """
    own = os.times()
    return own.user + own.system + own.children_user + own.children_system + _living(os.getpid())


def _living(process: int) -> float:
    """What the living children of the process have used, and theirs."""
    total = 0.0
    try:
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in (thread / "children").read_text().split():
                # After the name, which may hold anything (proc(5), /proc/PID/stat).
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, fields[11:15])) / _TICKS
                total += _living(int(child))
    except OSError:
        # It has ended while we looked: its parent has counted it.
        pass
    return total


class Costs:
    """Notes what each phase takes, and hands it over with the report of the last.

    What is used between two tests (by a control plane at rest) is counted to the later one.
    """

    def __init__(self) -> None:
        self._noted: dict[str, str] = {}
        self._seconds = 0.0
        self._own = time.process_time()
        self._all = processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "setup":
            self._noted.clear()
            self._seconds = 0.0
        self._noted[f"{call.when}_seconds"] = f"{call.duration:.3f}"
        self._seconds += call.duration
        if call.when == "teardown":
            self._noted["processor_seconds"] = f"{self._used():.2f}"
            report.user_properties += self._noted.items()
        return report

    def _used(self) -> float:
        """Seconds of the processors since the last test.

        To ask for those of all processes takes as long as most tests: of a short one only our own
        are noted, and the others with the next that is not.
        """
        own = time.process_time()
        if self._seconds < _SHORT_SECONDS:
            used = own - self._own
            self._all += used
        else:
            everything = processor_seconds()
            used = everything - self._all
            self._all = everything
        self._own = own
        return used


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(), "localvolume-costs")
