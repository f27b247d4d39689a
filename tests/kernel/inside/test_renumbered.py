"""S8: a disk that nothing tells from others is not cleaned once it may be another one.

Parts of a disk under device mapper without a UUID: they have neither serial number nor WWN, as
cheap virtual disks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cluster.support_agent import IDENTITY, Class, Lab, Volume
from tests.host.support_devices import command
from tests.suite.api import MERGE, VOLUMES
from tests.suite.units import MIB

from .support_lvm import DISKS
from .support_lvm_dynamic import LvmLab, lab

__all__ = ["lab"]

SIZE = 16 * MIB
SECRET = b"a tenant's, of which nobody has a copy"
PATH = "/dev/mapper/nameless"


def plug_in(part: int) -> None:
    """Which of the two disks of one kind has the name now."""
    sectors = SIZE // 512
    table = f"0 {sectors} linear {DISKS[1]} {part * sectors}"
    command("dmsetup", "create", "--noudevsync", "nameless", "--table", table)
    command("dmsetup", "mknodes")


def pull_out() -> None:
    command("dmsetup", "remove", "--noudevsync", "nameless")


@pytest.fixture
def raw(lab: LvmLab, volume_group: str) -> Iterator[Class]:
    # The lab counts looks at pools.
    lab.group(volume_group)
    lab.settings["storageClassMap"] = {}
    made = lab.add_class("raw", volumeMode="Block")
    lab.class_names.add(made.name)
    with open(DISKS[1], "r+b") as file:
        file.write(bytes(2 * SIZE))
    plug_in(0)
    (made.directory / "disk").symlink_to(PATH)
    yield made
    lab.stop()
    pull_out()


def recorded(volume: Volume) -> dict[str, str]:
    found: dict[str, str] = json.loads(volume["metadata"]["annotations"][IDENTITY])
    return found


def annotate(lab: LvmLab, volume: Volume, identity: dict[str, str] | None) -> None:
    text = None if identity is None else json.dumps(identity)
    path = f"{VOLUMES}/{volume['metadata']['name']}"
    patch = {"metadata": {"annotations": {IDENTITY: text}}}
    lab.plane.request("PATCH", path, patch, content_type=MERGE)


def write() -> None:
    with open(PATH, "r+b") as file:
        file.write(SECRET)


def has_it() -> bool:
    with open(PATH, "rb") as file:
        return file.read(len(SECRET)) == SECRET


def released(lab: LvmLab, volume: Volume) -> str:
    """Have a claim of a prepared volume come and go."""
    name = str(volume["metadata"]["name"])
    claim = Lab.claim(lab, volume)
    Lab.delete_claim(lab, claim)
    lab.until(lambda: lab.phase(name), lambda phase: phase == "Released")
    return name


def test_another_of_its_kind_under_its_name_is_not_cleaned(lab: LvmLab, raw: Class) -> None:
    lab.start()
    volume = lab.published(raw, "disk")
    assert recorded(volume).keys() == {"kind", "sizeBytes", "bootId", "diskSeq"}
    lab.stop()
    pull_out()
    plug_in(1)
    write()
    name = released(lab, volume)
    lab.start()
    lab.event(name, "VolumeFailedDelete", "the node was restarted or the disk reattached")
    lab.stays(volume)
    assert has_it()


def test_what_an_earlier_boot_recorded_is_cleaned_at_an_administrators_word(
    lab: LvmLab, raw: Class
) -> None:
    lab.start()
    volume = lab.published(raw, "disk")
    lab.stop()
    write()
    name = released(lab, volume)
    annotate(lab, volume, recorded(volume) | {"bootId": "b2a4f0c4-0000-4000-8000-000000000000"})
    lab.start()
    lab.event(name, "VolumeFailedDelete", "remove the annotation localvolume.dev/identity")
    lab.stays(volume)
    assert has_it()
    annotate(lab, volume, None)
    lab.published(raw, "disk", unlike=volume["metadata"]["uid"])
    assert not has_it()


def test_what_nobody_has_used_is_offered_anew(lab: LvmLab, raw: Class) -> None:
    lab.start()
    volume = lab.published(raw, "disk")
    annotate(lab, volume, recorded(volume) | {"diskSeq": "1000000"})
    again = lab.published(raw, "disk", unlike=volume["metadata"]["uid"])
    assert recorded(again) == recorded(volume)
