"""A volume's end was noted, then undone by a restore of etcd; months later etcd is lost. What the
note said of the first end must not remove what was written since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.flexvolume.driver import NOTES_OF_THE_END, Volume
from localvolume.flexvolume.drivers.bindmount import BindDriver
from localvolume.flexvolume.drivers.lvm.driver import Steps
from localvolume.flexvolume.drivers.lvm.marks import noted_on
from tests.attacks.support_etcd import Backup
from tests.cluster.support_flex import QUICK, FlexLab, flex_lab_for, phase_of
from tests.cluster.support_objects import Objects
from tests.host.support_images import run_here
from tests.host.test_flex_lvm_commands import GONE, Scripted, lv
from tests.host.test_flex_lvm_commands import volume as lvm_volume
from tests.host.test_flex_lvm_meanwhile import tagged

NOTED = {"gone-since": "2026-01-01T00:00:00Z", "ended": "uid-1"}


@pytest.fixture
def lab(objects: Objects, unique: str, tmp_path: Path) -> Iterator[FlexLab]:
    with flex_lab_for(objects, unique, tmp_path) as made:
        made.paces = replace(made.paces, flexvolume=QUICK)
        yield made


def of_the_end(lab: FlexLab, name: str) -> set[str]:
    return set(NOTES_OF_THE_END) & lab.note_of({"metadata": {"name": name}}).keys()


@pytest.mark.needs("root")
def test_an_end_that_a_restore_has_undone_removes_nothing_later(lab: FlexLab) -> None:
    lab.section["gracePeriod"] = "1h"
    volume = lab.volume()
    name = volume["metadata"]["name"]
    lab.serve()
    assert lab.mount(volume).ok
    (lab.target(volume) / "rows").write_text("of the first day")
    assert lab.unmount(volume).ok
    kept = f"persistentvolumes/{name}", f"persistentvolumeclaims/default/{name}"
    backup = Backup(lab.plane, *kept)
    lab.forget_claim(volume)
    lab.gone(volume)
    lab.until(lambda: of_the_end(lab, name), lambda notes: notes == set(NOTES_OF_THE_END))
    backup.restore()
    lab.until(lambda: phase_of(lab.read(name) or {}), lambda phase: phase == "Bound")
    lab.until(lambda: of_the_end(lab, name), lambda notes: not notes)
    # Months of use.
    assert lab.mount(volume).ok
    (lab.target(volume) / "rows").write_text("of all the months since")
    assert lab.unmount(volume).ok
    lab.stop()
    backup.lose()
    lab.gone(volume)
    lab.section["gracePeriod"] = "0s"
    lab.serve()
    gone = "localvolume_flexvolume_gone_volumes"
    lab.until(lambda: lab.metric(gone, fate="kept"), lambda kept: kept == 1)
    assert (lab.root / name / "rows").read_text() == "of all the months since"
    assert lab.recorded() == [name]


@pytest.mark.needs("root")
def test_an_end_that_nobody_undid_still_removes(lab: FlexLab) -> None:
    """Also where the agent sees the object time and again while it is being deleted."""
    volume = lab.volume(finalizers=["example.com/hold"])
    name = volume["metadata"]["name"]
    lab.serve()
    assert lab.mount(volume).ok
    assert lab.unmount(volume).ok
    lab.forget_claim(volume)
    lab.until(lambda: of_the_end(lab, name), lambda notes: "ended" in notes)
    before = lab.looks()
    lab.until(lab.looks, lambda looks: looks >= before + 2)
    assert of_the_end(lab, name) == {"ended"}
    lab.patch(name, {"metadata": {"finalizers": None}})
    lab.gone(volume)
    lab.until(lab.recorded, lambda found: not found)


@pytest.mark.needs("root")
def test_a_mounted_directory_has_no_note_of_an_end(driver: BindDriver, target: Path) -> None:
    """Whether or not the agent has looked since the restore."""
    volume = Volume(name="pvc-1", size_bytes=1, tags={"pv-uid": "uid-1", "policy": "Delete"})
    for _ in range(2):
        driver.mount(volume, str(target))
        (mounted,) = driver.list_volumes()
        assert not set(NOTES_OF_THE_END) & mounted.tags.keys()
        driver.unmount("pvc-1", str(target))
        driver.note("pvc-1", NOTED)


def test_a_logical_volume_that_is_mounted_has_no_note_of_an_end(tmp_path: Path) -> None:
    host = Scripted(tmp_path)
    host.has(lv("pvc-1", **tagged(**{**GONE, **NOTED})))
    (found,) = host.opened().volumes()
    noted = noted_on(found)
    assert noted is not None
    assert noted.items() >= NOTED.items()
    taken = noted_on(Steps(run_here, host.opened()).taken(found, lvm_volume()))
    assert taken is not None
    assert not set(NOTES_OF_THE_END) & taken.keys()
    (change,) = [line for line in host.asked() if line.startswith("lvchange")]
    assert all(f"--deltag localvolume.dev/{note}=" in change for note in NOTES_OF_THE_END)
