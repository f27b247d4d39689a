"""Metrics are read in another thread: who finds a look there finds all that was said of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from localvolume.volumes.marks import DYNAMIC_PROVISIONER
from tests.cluster.support_agent import Lab
from tests.cluster.support_dynamic import DynamicLab
from tests.suite.names import PROVISIONER

pytestmark = pytest.mark.needs("root", "controlplane")

Told = tuple[float, float]
"""How many looks are counted, and how much is held."""


class _WhileSaid(logging.Handler):
    """What is told while that is said, each time."""

    def __init__(self, text: str, told: Callable[[], Told]) -> None:
        super().__init__()
        self._text = text
        self.found: list[Told] = []
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self.found.append(self._told())


@contextmanager
def while_said(text: str, told: Callable[[], Told]) -> Iterator[list[Told]]:
    handler = _WhileSaid(text, told)
    logging.getLogger("localvolume").addHandler(handler)
    try:
        yield handler.found
    finally:
        logging.getLogger("localvolume").removeHandler(handler)


def test_of_disks(lab: Lab) -> None:
    fs = lab.add_class("fs")
    fs.path("file").write_text("neither a mount nor a device")
    with while_said("is left alone", lambda: (lab.looks(), sum(lab.held(fs).values()))) as found:
        lab.start()
    assert found == [(0, 0)]
    assert sum(lab.held(fs).values()) == 1
    lab.stop()


@pytest.mark.needs("loop", "ext4")
def test_of_claims(dynamic: DynamicLab) -> None:
    dynamic.pool()
    asked = {PROVISIONER: DYNAMIC_PROVISIONER}
    claim = dynamic.claim(f"{dynamic.unique}-not-there", annotations=asked)

    def told() -> Told:
        return dynamic.looks(), dynamic.metric("localvolume_dynamic_held") or 0

    with while_said("failed to provision", told) as found:
        dynamic.start()
    assert found == [(0, 0)]
    assert dynamic.metric("localvolume_dynamic_held") == 1
    dynamic.claim_event(claim, "ProvisioningFailed")
    dynamic.stop()
