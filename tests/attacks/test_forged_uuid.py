"""E7: who has a raw volume writes a neighbour's UUID onto it, and the next boot mounts that."""

import pytest

from tests.cluster.support_agent import Lab, Volume
from tests.host.support_devices import LoopDevice, command, mounted

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]


def forge(disk: LoopDevice, raw: LoopDevice) -> None:
    """Give the raw device a filesystem with the UUID of the disk's."""
    uuid = command("blkid", "--probe", "--match-tag", "UUID", "--output", "value", disk.path)
    command("mkfs.ext4", "-q", "-F", "-U", uuid.strip(), raw.path)
    with mounted(raw) as inside:
        (inside / "secret").write_text("of the raw volume's claim")


def data_of(raw: LoopDevice) -> str:
    with mounted(raw) as inside:
        return (inside / "secret").read_text()


@pytest.mark.parametrize("holder", ["a claim", "nobody"])
def test_what_is_mounted_by_a_forged_uuid_is_neither_offered_nor_cleaned(
    lab: Lab, holder: str
) -> None:
    fs, block = lab.add_class("fs"), lab.add_class("block", volumeMode="Block")
    disk, raw, path = lab.disk(), lab.raw_disk(), fs.path("one")
    path.mkdir()
    lab.link(raw, block.path("raw"))
    with mounted(disk, path):
        lab.start()
        volume, theirs = lab.published(fs, "one"), lab.published(block, "raw")
        claim = lab.bound(volume) if holder == "a claim" else None
        lab.bound(theirs)
        lab.stop()
    forge(disk, raw)
    with mounted(raw, path):
        lab.start()
        _is_told(lab, volume, claim)
        assert [one["metadata"]["uid"] for one in lab.volumes_at(block, "raw")] == [
            theirs["metadata"]["uid"]
        ]
        lab.stop()
    assert data_of(raw) == "of the raw volume's claim"


def _is_told(lab: Lab, volume: Volume, claim: str | None) -> None:
    name = volume["metadata"]["name"]
    if claim is None:
        # Nobody has used what the object means: it goes, and nothing comes in its place.
        lab.until(lambda: lab.volume(name), lambda found: found is None)
        lab.holds(lab.classes["fs"], {"duplicate": 1})
        return
    lab.event(name, "VolumeReplaced", "its deviceLoopInode was")
    lab.delete_claim(claim)
    lab.event(name, "VolumeFailedDelete", "its deviceLoopInode was")
    lab.stays(volume)
