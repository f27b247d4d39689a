"""Shared by the tests on a real control plane."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume.cleaning import run
from localvolume.controlplane import ControlPlane
from tests.cluster.support_agent import Lab, lab_for
from tests.cluster.support_objects import Objects


@pytest.fixture
def objects(control_plane: ControlPlane) -> Iterator[Objects]:
    made = Objects(control_plane)
    yield made
    made.clean()


@pytest.fixture
def lab(objects: Objects, unique: str, tmp_path: Path) -> Iterator[Lab]:
    """A node of one test's own; the test adds classes and disks and starts the agent."""
    with lab_for(objects, unique, tmp_path) as lab:
        yield lab


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten what the agent waits before it tries or looks again by itself."""
    monkeypatch.setattr("localvolume.cleaning.limits._FIRST_WAIT", 0.4)
    monkeypatch.setattr("localvolume.static.plan.LOOK_AGAIN_SECONDS", 0.5)
    monkeypatch.setattr("localvolume.static.facts.STALE_SECONDS", 0.3)


@pytest.fixture
def before_cleaning(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What the test puts in here happens once, after all was looked at and before the cleaning."""
    todo: list[Callable[[], object]] = []
    real = run.clean

    async def clean(*args: Any, **kwargs: Any) -> object:
        while todo:
            todo.pop(0)()
        return await real(*args, **kwargs)

    monkeypatch.setattr("localvolume.static.act.clean", clean)
    return todo
