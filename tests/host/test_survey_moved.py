"""A discovery directory that is moved while it is looked at: what lay in it is not gone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from localvolume.config.model import ClassConfig
from localvolume.host.process.workers import Workers
from localvolume.static.facts.known import Changes
from localvolume.static.facts.survey import Survey
from tests.host.support_mounts import Mounts
from tests.host.support_paces import PATIENT

pytestmark = pytest.mark.needs("root")

R = TypeVar("R")
OFFERED = {"/host/fs/one", "/host/fs/two"}


class Meanwhile(Workers):
    """Does something once, right after a directory was first listed."""

    def __init__(self, directory: str, act: Callable[[], object]) -> None:
        super().__init__()
        self._directory = directory
        self._act: Callable[[], object] | None = act

    async def call(self, key: str, seconds: float, fn: Callable[..., R], *args: Any) -> R:
        result = await super().call(key, seconds, fn, *args)
        if key == self._directory and self._act is not None:
            act, self._act = self._act, None
            act()
        return result


@pytest.mark.parametrize("replaced", [False, True])
async def test_what_lay_in_it_is_not_gone(tmp_path: Path, replaced: bool) -> None:
    """Its volumes would be withdrawn, with a PersistentVolume that nobody claimed yet."""
    place = Path(os.path.realpath(tmp_path))
    directory, moved = place / "fs", place / "moved"
    told: list[bool] = []
    with Mounts() as mounts:
        mounts.tmpfs(str(directory / "one"))
        (directory / "two").mkdir()

        def move() -> None:
            directory.rename(moved)
            if replaced:
                directory.mkdir()

        workers = Meanwhile(str(directory), move)
        fs = ClassConfig(name="fs", host_dir="/host/fs", mount_dir=str(directory))
        survey = Survey(workers, PATIENT, look_again=lambda: told.append(True))
        try:
            found = await survey.look({"fs": fs}, OFFERED, Changes(everything=True))
            said = f"the discovery directory {directory} was moved during the look"
            assert (found.entries, found.problems) == ([], {"fs": said})
            assert told
            if replaced:
                directory.rmdir()
            moved.rename(directory)
            # It is listed anew, whatever else has changed.
            found = await survey.look({"fs": fs}, OFFERED, Changes(host=False))
            gone = {one.name: one.problem and one.problem.code for one in found.entries}
            assert gone == {"one": None, "two": "gone"}
            assert not found.problems
        finally:
            if moved.exists():
                moved.rename(directory)
            await survey.stop()
            workers.close()
