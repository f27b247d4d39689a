"""What each test costs: seconds of its set-up, call and teardown, and of the processors.

A plugin of pytest's. The figures are properties of the test in the JUnit report, so they come
from every process that runs tests, the guest's too; table.py reads them there.
"""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

#: As proc(5) counts utime and stime.
_TICKS = os.sysconf("SC_CLK_TCK")


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
    """Notes what each phase takes, and hands it over with the report of the last."""

    def __init__(self) -> None:
        self._noted: dict[str, str] = {}
        self._began = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._noted.clear()
        self._began = processor_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        self._noted[f"{call.when}_seconds"] = f"{call.duration:.3f}"
        if call.when == "teardown":
            self._noted["processor_seconds"] = f"{processor_seconds() - self._began:.2f}"
            report.user_properties += self._noted.items()
        return report


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(), "localvolume-costs")
