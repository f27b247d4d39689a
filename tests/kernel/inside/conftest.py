"""These tests format disks by name: in no other place than the guest."""

import os

import pytest

from tests.kernel.support_guest import INSIDE

from .support_lvm import lvm, second_group, thin_pool, volume_group
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
