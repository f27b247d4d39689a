"""Filesystems as tenants leave them: emptied to the last file, and nothing outside touched."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster.support_agent import IDENTITY, Lab, Volume
from tests.host.support_devices import bind, command, immutable, tmpfs

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs", "btrfs", "controlplane")


def live_like_a_tenant(where: Path, outside: Path) -> None:
    """Deep, wide, hidden, locked, linked to the outside."""
    deep = where
    for level in range(60):
        deep = deep / f"level {level}"
        deep.mkdir()
        (deep / "file").write_bytes(b"x" * 100)
    many = where / "many"
    many.mkdir()
    for number in range(300):
        (many / f"{number}").touch()
    os.link(many / "0", where / "hard")
    (where / "to a file").symlink_to(outside / "precious")
    (where / "to a directory").symlink_to(outside)
    (where / ".hidden").write_text("secret")
    (where / "new\nline \\ ü").write_text("secret")
    os.mkfifo(where / "fifo")
    locked = where / "locked"
    locked.mkdir()
    (locked / "file").write_text("secret")
    locked.chmod(0)


def test_each_kind_goes_the_whole_round(lab: Lab, tmp_path: Path) -> None:
    fs = lab.add_class("fs")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("not theirs")
    places = {kind: lab.mount(lab.disk(kind), fs.path(kind)) for kind in ("ext4", "xfs", "btrfs")}
    for kind in ("tmpfs", "bind"):
        fs.path(kind).mkdir()
        places[kind] = fs.path(kind)
    lab.stack.enter_context(tmpfs(fs.path("tmpfs")))
    # A directory of a larger disk: its sibling belongs to somebody else.
    disk = lab.mount(lab.disk("ext4"), tmp_path / "disk")
    (disk / "offered").mkdir()
    (disk / "sibling").mkdir()
    (disk / "sibling/precious").write_text("not theirs")
    lab.stack.enter_context(bind(disk / "offered", fs.path("bind")))
    lab.start()
    volumes = {kind: lab.published(fs, kind) for kind in places}

    identities = {kind: identity_of(volume) for kind, volume in volumes.items()}
    for kind in ("ext4", "xfs", "btrfs"):
        uuid = command("findmnt", "-no", "UUID", "--mountpoint", places[kind]).strip()
        assert identities[kind]["uuid"] == uuid
        assert identities[kind]["fsType"] == kind
    assert identities["bind"]["root"] == "/offered"
    for kind, volume in volumes.items():
        found = os.statvfs(places[kind])
        size = f"{(found.f_blocks * found.f_bsize) >> 20}Mi"
        assert (kind, volume["spec"]["capacity"]["storage"]) == (kind, size)

    claims = {kind: lab.bound(volume) for kind, volume in volumes.items()}
    for where in places.values():
        live_like_a_tenant(where, outside)
    with immutable(places["ext4"] / ".hidden"), immutable(places["xfs"] / "many"):
        for claim in claims.values():
            lab.delete_claim(claim)
        for kind, volume in volumes.items():
            again = lab.published(fs, kind, unlike=volume["metadata"]["uid"])
            assert identity_of(again) == identities[kind]
            assert again["spec"]["capacity"] == volume["spec"]["capacity"]
    for kind, where in places.items():
        assert (kind, set(os.listdir(where)) - {"lost+found"}) == (kind, set())
        assert os.path.ismount(where)
    assert (places["ext4"] / "lost+found").is_dir()
    assert (outside / "precious").read_text() == "not theirs"
    assert (disk / "sibling/precious").read_text() == "not theirs"


def identity_of(volume: Volume) -> dict[str, str]:
    found: dict[str, str] = json.loads(volume["metadata"]["annotations"][IDENTITY])
    return found


def test_a_btrfs_subvolume_that_a_tenant_made_goes_or_is_held(lab: Lab) -> None:
    """It has a device number of its own and looks like a mount; what matters is that nothing of
    it is left for the next tenant."""
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk("btrfs"), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    command("btrfs", "subvolume", "create", where / "inner")
    (where / "inner/secret").write_text("tenant")
    lab.delete_claim(claim)
    name = volume["metadata"]["name"]
    lab.until(
        lambda: {event["reason"] for event in lab.events(name)},
        lambda reasons: reasons & {"VolumeCleaned", "VolumeFailedDelete"},
    )
    found = lab.volumes_at(fs, "one")
    offered = bool(found) and found[0]["status"].get("phase") == "Available"
    assert not (offered and (where / "inner/secret").exists())
    subprocess.run(["btrfs", "subvolume", "delete", where / "inner"], capture_output=True)
