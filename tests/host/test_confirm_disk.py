"""What of a disk is looked at again right before it is cleaned, when all was decided."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from localvolume.cleaning.receipt import CleaningRefused
from localvolume.host.process.workers import Workers
from localvolume.kube.access.auth import Access
from localvolume.kube.client import Client
from localvolume.static.facts.survey import Survey
from localvolume.static.model import Entry
from localvolume.static.preconditions import Confirm, Superseded
from tests.host.support_devices import command, loop_device, tmpfs
from tests.host.support_paces import PATIENT
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop")


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    made = Workers()
    yield made
    made.close()


async def test_a_device_of_another_size_is_not_the_one_that_was_decided_about(
    workers: Workers,
) -> None:
    """It was exchanged, or grown by somebody who has plans with it."""
    # The API server is not asked here.
    client = Client(Access("https://127.0.0.1:1", source="a test"), user_agent="test")
    confirm = Confirm(client, Survey(workers, PATIENT), workers, lambda _: None)
    with loop_device(4 * MIB) as loop:
        entry = await Survey(workers, PATIENT).read_now(
            Entry("", "disk", loop.path, loop.path), offered=False
        )
        assert entry.size_bytes == 4 * MIB
        assert await confirm.still(entry) == entry
        os.truncate(loop.backing, 8 * MIB)
        command("losetup", "--set-capacity", loop.path)
        with pytest.raises(Superseded, match="has changed: its size"):
            await confirm.still(entry)


async def test_what_pods_have_mounted_is_asked_once_more(workers: Workers, tmp_path: Path) -> None:
    client = Client(Access("https://127.0.0.1:1", source="a test"), user_agent="test")
    kubelet = tmp_path / "kubelet"
    (kubelet / "pods").mkdir(parents=True)
    (tmp_path / "disk").mkdir()
    survey = Survey(workers, PATIENT, kubelet_directory=str(kubelet))
    confirm = Confirm(client, survey, workers, lambda _: None)
    with tmpfs(tmp_path / "disk") as path:
        entry = await survey.read_now(Entry("", "disk", str(path), str(path)), offered=True)
        assert (await confirm.free_to_be_cleaned(entry)).path == str(path)
        (kubelet / "pods").rmdir()
        with pytest.raises(CleaningRefused, match="what pods have mounted cannot be seen"):
            await confirm.free_to_be_cleaned(entry)
    with loop_device(4 * MIB) as loop:
        entry = await survey.read_now(Entry("", "raw", loop.path, loop.path), offered=True)
        # Whether a device is in use it tells itself.
        assert (await confirm.free_to_be_cleaned(entry)).path == loop.path
