"""What the kernel knows of failed filesystems and disks is found, by the path of a volume."""

import asyncio
import os
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.health.facts import Look, Survey, _Turn, _with_filled
from localvolume.health.model import Image, Location, Seen
from localvolume.host.filesystem.errors import (
    SOUND,
    device_failure,
    filesystem_failure,
    kernel_name,
    mounted_failure,
)
from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.process.workers import Workers
from tests.host.support_devices import (
    bind,
    command,
    formatted,
    loop_device,
    mounted,
    tmpfs,
    unmount,
)
from tests.host.support_failing import (
    count_an_error,
    dead_filesystem,
    mounted_elsewhere,
    repair,
    shut_down,
    starve,
    waits_for_a_disk,
)
from tests.suite.clock import LONG, Clock
from tests.suite.units import MIB
from tests.suite.until import until_async

pytestmark = pytest.mark.needs("root", "loop", "ext4")

WELL = Seen()


def at(path: Path | str, kind: str = "mount", **more: object) -> Seen:
    """What a look at one place finds wrong there, now."""
    seen = Look(read_mount_table()).at(Location(path=str(path), kind=kind, **more))  # type: ignore[arg-type]
    return replace(seen, filled=None)


def test_an_ext4_that_counts_errors_until_it_is_repaired() -> None:
    with formatted("ext4") as device:
        with mounted(device) as where:
            assert at(where) == at(device.path, "device") == at(where, "any") == WELL
            count_an_error(device)
            found = at(where)
            assert f"ext4 on {device.name} counts errors since 20" in found.errors
            assert not found.stopped
            assert at(device.path, "device").errors == found.errors
            # It does not change with the next one: nothing is to be written for that.
            count_an_error(device)
            assert at(where) == found
            mount = read_mount_table().at(str(where))
            assert mount is not None
            assert str(mounted_failure(mount)) == found.errors
        assert at(device.path, "device") == WELL, "it is not mounted: the kernel knows nothing"
        with mounted(device) as where:
            assert at(where).errors == found.errors
        repair(device)
        with mounted(device) as where:
            assert at(where) == WELL


def test_an_ext4_that_stops_writing_and_one_that_people_made_read_only() -> None:
    with formatted("ext4") as device:
        with mounted(device, options="errors=remount-ro") as where:
            with bind(where) as two:
                count_an_error(device)
                for path in (where, two):
                    found = at(path)
                    assert found.stopped == "its ext4 takes no writes any more"
                    assert "counts errors" in found.errors
            with pytest.raises(OSError, match="Read-only"):
                (where / "file").write_text("")
        repair(device)
        with mounted(device, options="ro") as where:
            assert at(where) == WELL
            assert at(where, "directory", written=True).stopped == "its ext4 is mounted read-only"
        with mounted(device) as where:
            command("mount", "-o", "remount,ro", where)
            assert at(where) == WELL
        with mounted(device) as where, bind(where, read_only=True) as two:
            assert at(two) == at(two, "directory", written=True) == WELL


def test_a_filesystem_that_is_mounted_where_this_process_does_not_look(tmp_path: Path) -> None:
    """A pod's mount of a device: kubelet's mounts need not be in the agent's namespace."""
    with formatted("ext4") as device, mounted_elsewhere(device, tmp_path):
        assert read_mount_table().of_device(device.number) == []
        assert at(device.path, "device") == WELL
        count_an_error(device)
        assert "counts errors" in at(device.path, "device").errors


@pytest.mark.needs("xfs")
def test_an_xfs_that_has_shut_down() -> None:
    with formatted("xfs") as device, mounted(device) as where:
        (where / "volume").mkdir()
        inside = Location(path=f"{where}/volume", kind="directory", below=str(where), written=True)
        locations = (("", "mount"), ("/volume", "directory"))
        for below, kind in locations:
            assert at(f"{where}{below}", kind) == WELL
        assert at(device.path, "device") == WELL
        shut_down(where)
        for below, kind in locations:
            assert "Input/output error" in at(f"{where}{below}", kind).errors
        assert "Input/output error" in at(device.path, "device").errors
        assert "Input/output error" in Look(read_mount_table()).at(inside).errors
        unmount(where)
        command("mount", device.path, where)
        assert at(where) == WELL


def test_how_full_it_is_is_told_of_prepared_volumes_that_are_there() -> None:
    """In a pool, the backend counts; and of a disk that is gone the kernel remembers figures."""
    with formatted("ext4") as device, mounted(device) as where:
        prepared = Location(path=device.path, kind="device")
        look = Look(read_mount_table())
        assert look.at(prepared).filled
        assert look.at(Location(path=str(where), kind="mount")).filled
        assert look.at(replace(prepared, pool="fast")).filled is None
        assert _with_filled(Seen(), str(where)).filled
        assert _with_filled(Seen(gone="its disk is gone"), str(where)).filled is None


@pytest.mark.needs("btrfs")
def test_a_btrfs_that_cannot_write() -> None:
    with formatted("btrfs") as device, mounted(device) as where:
        assert at(where) == at(device.path, "device") == WELL
        starve(where, device)
        found = at(where)
        assert found.stopped == "its btrfs takes no writes any more"
        assert f"btrfs on {device.name} counts errors (" in found.errors
        # What is read of an entry before it is offered tells the same.
        mount = read_mount_table().at(str(where))
        assert mount is not None
        assert mounted_failure(mount).errors == found.errors
        assert "write" in found.errors
        assert at(device.path, "device") == found


def test_what_is_not_there(tmp_path: Path) -> None:
    assert at(tmp_path / "nothing").gone == f"{tmp_path}/nothing is not there"
    assert at(tmp_path).gone == f"nothing is mounted at {tmp_path}"
    assert at(tmp_path, "any").gone == f"nothing is mounted at {tmp_path}"
    assert at(tmp_path, "directory") == WELL
    assert "no block device" in at(tmp_path, "device").gone
    (tmp_path / "file").touch()
    assert "no directory" in at(tmp_path / "file", "directory").gone
    with loop_device() as device:
        link = tmp_path / "link"
        link.symlink_to(device.path)
        assert at(link, "device") == WELL
        device.detach()
        assert "no size" in at(link, "device").gone
        link.unlink()
        link.symlink_to(tmp_path / "gone")
        assert at(link, "device").gone == f"{link} is not there"
    below = Location(path=str(tmp_path), kind="directory", below=str(tmp_path / "pool"))
    assert Look(read_mount_table()).at(below).gone == f"{tmp_path}/pool is not there"
    node = tmp_path / "node"
    os.mknod(node, 0o600 | 0o060000, os.makedev(7, 999_983))
    assert "no device" in at(node, "device").gone


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A directory with two files that are alike."""
    made = tmp_path / "images"
    made.mkdir()
    for name in ("own", "another"):
        (made / name).write_bytes(bytes(MIB))
    return made


def attached(stack: ExitStack, file: Path, mode: int = os.O_RDWR, **flags: int) -> str:
    """The node of a loop device that stands on the file, and on all of it unless `flags` say else
    (of struct loop_info64, as losetup sets them)."""
    options = [f"--{name}={value}" for name, value in flags.items()]
    if mode == os.O_RDONLY:
        options.append("--read-only")
    node = command("losetup", "--find", "--show", *options, file).strip()
    stack.callback(command, "losetup", "--detach", node)
    return node


@pytest.mark.needs("losetup")
def test_what_is_behind_the_loop_device_of_an_image(images: Path, tmp_path: Path) -> None:
    own = Image(str(images), (images / "own").stat().st_ino)
    link = tmp_path / "link"

    def seen(node: str, image: Image = own) -> Seen:
        link.unlink(missing_ok=True)
        link.symlink_to(node)
        return at(link, "device", image=image)

    with ExitStack() as stack:
        node = attached(stack, images / "own")
        assert seen(node) == WELL
        # The same number in another filesystem is another file.
        with tmpfs() as elsewhere:
            found = seen(node, Image(str(elsewhere), own.inode))
            assert "its image is not behind that" in found.gone
        for wrong in (
            attached(stack, images / "another"),
            stack.enter_context(loop_device(MIB)).path,
        ):
            assert "its image is not behind that" in seen(str(wrong)).gone
        assert "is not there" in seen("/dev/loop-of-nobody").gone
        # Nobody can tell where the pool is not to be seen: nothing is concluded.
        found = seen(node, Image(str(tmp_path / "away"), own.inode))
        assert (found.gone, found.unknown.partition(":")[0]) == (
            "",
            f"it is not known what is behind {node}",
        )
    for part in ({"mode": os.O_RDONLY}, {"offset": 4096}, {"sizelimit": 4096}):
        with ExitStack() as stack:
            node = attached(stack, images / "own", **part)
            assert "only in part, for reading, or until nobody uses it" in seen(node).gone


def test_the_room_in_a_pool(tmp_path: Path) -> None:
    with tmpfs(size=16 * MIB) as pool:
        (pool / "volume").mkdir()
        location = Location(
            path=f"{pool}/volume", kind="directory", below=str(pool), takes_space=True
        )
        space = Look(read_mount_table()).at(location).space
        assert space is not None
        assert space.total_bytes == space.available_bytes == 16 * MIB
        with (pool / "volume" / "big").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 16 * MIB)
        space = Look(read_mount_table()).at(location).space
        assert space is not None
        assert space.available_bytes == 0


async def test_a_place_that_hangs_is_left_behind_alone(tmp_path: Path) -> None:
    clock, workers = Clock(), Workers()
    survey = Survey(workers, look_seconds=LONG)
    locations = {
        name: Location(path=str(tmp_path / name), kind="directory") for name in ("a", "dead", "z")
    }
    (tmp_path / "a").mkdir()
    (tmp_path / "z").mkdir()
    with dead_filesystem(tmp_path / "dead"):
        look = asyncio.create_task(survey.look(locations))
        await until_async(waits_for_a_disk)
        clock.move_on(2 * LONG)
        found = await look
        assert found == {"a": WELL, "dead": Seen(unknown="it does not answer"), "z": WELL}
        assert list(workers.hung.values()) == [1]
        began, calls = time.monotonic(), workers.calls_total
        assert await survey.look(locations) == found
        assert time.monotonic() - began < 60
        # It was not asked a second time, and takes no second thread.
        assert (list(workers.hung.values()), workers.calls_total) == ([1], calls + 1)
    # Its thread comes back to a look that nobody waits for any more, and ends.
    turn = _Turn(locations, "/sys")
    turn.given_up.set()
    turn.run()
    assert turn.found == {}
    await until_async(lambda: not workers.hung)
    assert await survey.look(locations) == dict.fromkeys(locations, WELL)
    workers.close()


class TestDisks:
    """Of disks that this machine does not have: a tree as the kernel's sysfs is."""

    @pytest.fixture
    def sys(self, tmp_path: Path) -> Path:
        devices, block = tmp_path / "devices", tmp_path / "class" / "block"
        block.mkdir(parents=True)
        (tmp_path / "dev" / "block").mkdir(parents=True)
        for number, path in enumerate(("sda", "sda/sda1", "nvme0n1", "dm-0", "dm-1")):
            base = devices / path
            base.mkdir(parents=True)
            (base / "dev").write_text(f"8:{number}\n")
            (block / base.name).symlink_to(os.path.relpath(base, block))  # as the kernel's are
            (tmp_path / "dev" / "block" / f"8:{number}").symlink_to(base)
        (devices / "sda" / "sda1" / "partition").write_text("1\n")
        for disk, state in (("sda", "running"), ("nvme0n1", "live")):
            (devices / disk / "device").mkdir()
            (devices / disk / "device" / "state").write_text(f"{state}\n")
        for upper, lower in (("dm-0", "sda/sda1"), ("dm-1", "dm-0"), ("dm-1", "nvme0n1")):
            slaves = devices / upper / "slaves"
            slaves.mkdir(exist_ok=True)
            (slaves / os.path.basename(lower)).symlink_to(devices / lower)
        return tmp_path

    def test_disks_that_the_kernel_has_given_up(self, sys: Path) -> None:
        names = ("sda", "sda1", "dm-0", "dm-1", "nvme0n1")
        assert kernel_name("8:1", str(sys)) == "sda1"
        assert kernel_name("8:9", str(sys)) == ""
        assert not any(str(device_failure(name, str(sys))) for name in names)
        state = sys / "devices" / "sda" / "device" / "state"
        state.write_text("offline\n")
        for name in names[:4]:
            found = device_failure(name, str(sys))
            assert found.errors == "the kernel has taken the disk sda offline (offline)"
        assert not str(device_failure("nvme0n1", str(sys)))
        state.write_text("deleted\n")
        assert "taking the disk sda away" in device_failure("dm-1", str(sys)).leaving
        state.write_text("running\n")
        (sys / "devices" / "nvme0n1" / "device" / "state").write_text("dead\n")
        assert "nvme0n1" in device_failure("dm-1", str(sys)).errors
        assert not str(device_failure("dm-0", str(sys)))

    def test_what_makes_no_sense_is_no_error(self, sys: Path) -> None:
        (sys / "devices" / "sda" / "device" / "state").unlink()
        (sys / "devices" / "dm-0" / "slaves" / "dm-1").symlink_to(sys / "devices" / "dm-1")
        assert not str(device_failure("dm-0", str(sys)))
        assert not str(device_failure("none", str(sys)))


def test_one_that_is_unmounted_while_it_is_read_is_told_nothing_of(tmp_path: Path) -> None:
    """The kernel takes its files away one by one. The first is there until it has been read."""
    base = tmp_path / "fs" / "ext4" / "sdz"
    base.mkdir(parents=True)
    count = base / "errors_count"
    os.mkfifo(count)

    def told_and_gone() -> None:
        with open(count, "w") as file:  # once it is being read
            count.unlink()
            file.write("2\n")

    kernel = threading.Thread(target=told_and_gone)
    kernel.start()
    try:
        assert filesystem_failure("sdz", (), {}, str(tmp_path)) == SOUND
    finally:
        kernel.join(10)


def test_a_kernel_that_knows_no_time_tells_of_errors(tmp_path: Path) -> None:
    base = tmp_path / "fs" / "ext4" / "sdz"
    base.mkdir(parents=True)
    (base / "errors_count").write_text("2\n")
    found = filesystem_failure("sdz", (), {}, str(tmp_path))
    assert found.errors == "its ext4 on sdz counts errors, until e2fsck has repaired it"
