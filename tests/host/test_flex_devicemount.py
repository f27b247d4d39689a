"""A device's filesystem made, mounted and unmounted: the very commands, and what is said where one
fails. elastic's package `diskutil`, with real devices in place of its fakes."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.lvm.filesystem import make_filesystem
from localvolume.backends.model import BackendFailed
from localvolume.flexvolume.driver import DriverFailed
from localvolume.flexvolume.drivers.devicemount import Filesystem, give_to_group, mount, unmount
from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.process.commands import Finished
from tests.host.support_devices import LoopDevice, formatted, loop_device
from tests.host.support_images import run_here
from tests.host.support_mounts import MNT_DETACH, MS_BIND, umount
from tests.host.support_mounts import mount as bind

pytestmark = pytest.mark.needs("root", "loop", "ext4")


@dataclass
class Host:
    """Runs commands, and remembers what was run."""

    asked: list[list[str]] = field(default_factory=list)

    def __call__(self, argv: Sequence[str], timeout: float, **more: Any) -> Finished:
        self.asked.append(list(argv))
        return run_here(argv, timeout, **more)

    def ran(self) -> list[list[str]]:
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def device() -> Iterator[LoopDevice]:
    with formatted("ext4") as made:
        yield made


@pytest.fixture
def target(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "target")
    yield path
    for left in reversed(read_mount_table().below(str(tmp_path))):
        umount(left.mount_point, MNT_DETACH)


def held(device: LoopDevice, **fields: object) -> Filesystem:
    given: dict[str, object] = {"device": device.number, "node": device.path, "fs_type": "ext4"}
    return Filesystem(**{**given, **fields})  # type: ignore[arg-type]  # by field


def test_a_device_is_mounted_by_one_command(host: Host, device: LoopDevice, target: str) -> None:
    """E-FV-20: `mount DEVICE TARGET`, ours with the type and with what ends the options.

    E-FV-23: the target is made where it is not there, without its parents.
    W-28: once more is nothing more (TopoLVM's, and OpenEBS', stack what they mount).
    """
    mount(host, held(device), target)
    assert host.ran() == [["mount", "-t", "ext4", "--", device.path, target]]
    assert stat.S_ISDIR(os.stat(target).st_mode)
    before = len(read_mount_table())
    mount(host, held(device), target)
    assert (host.ran(), len(read_mount_table())) == ([], before)


def test_its_failure_is_in_the_commands_words(host: Host, target: str) -> None:
    """E-FV-20: the error text; elastic's form was `err. Output: out`."""
    with loop_device(8 << 20) as blank:
        refused = rf"{blank.path} cannot be mounted: mount: .*type"
        with pytest.raises(DriverFailed, match=refused):
            mount(host, held(blank), target)
        with pytest.raises(DriverFailed, match="'bind' is no mount option"):
            mount(host, held(blank, options=("bind",)), target)
    assert len(host.ran()) == 1, "the second was refused before any command"


def test_it_is_unmounted_by_one_command(host: Host, device: LoopDevice, target: str) -> None:
    """E-FV-21: `umount TARGET`; the error text where it is in use; and nothing where there is
    nothing to do, which elastic's driver failed at."""
    mount(host, held(device), target)
    host.ran()
    with (
        open(f"{target}/held", "w"),
        pytest.raises(DriverFailed, match=f"{target} cannot be unmounted: umount: .*busy"),
    ):
        unmount(host, target, {device.number})
    assert host.ran() == [["umount", "--", target]]
    assert unmount(host, target, {device.number})
    assert host.ran() == [["umount", "--", target]]
    assert os.path.isdir(target), "it is the kubelet's"
    assert not unmount(host, target, {device.number})
    assert not unmount(host, f"{target}/none", {device.number})
    assert host.ran() == []


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (lambda _: "", "leads elsewhere"),
        (lambda target: f"{target}/a/b", "cannot be made: No such file"),
        (lambda target: f"{target}/file", "is no directory"),
    ],
    ids=["empty", "no parent", "a file"],
)
def test_targets_that_cannot_be(
    host: Host, device: LoopDevice, target: str, place: Callable[[str], str], said: str
) -> None:
    """E-FV-23: an empty path is an error, and so is whatever is no directory."""
    os.mkdir(target)
    Path(target, "file").touch()
    with pytest.raises(DriverFailed, match=said):
        mount(host, held(device), place(target))
    assert (host.ran(), os.listdir(target)) == ([], ["file"])


def test_read_only_is_each_mounts_own(host: Host, device: LoopDevice, target: str) -> None:
    """W-09: elastic's driver never looked at `readwrite`."""
    mount(host, held(device, read_only=True), target)
    with pytest.raises(OSError, match="Read-only"):
        Path(target, "file").touch()
    assert host.ran()[1:] == [["mount", "-o", "remount,bind,ro", "--", target]]


def test_a_device_that_takes_no_writes_is_mounted_so(
    host: Host, device: LoopDevice, target: str
) -> None:
    mount(host, held(device, writable=False), target)
    assert host.ran() == [["mount", "-t", "ext4", "-o", "ro", "--", device.path, target]]


def test_what_no_repair_would_help_names_none(host: Host, device: LoopDevice, target: str) -> None:
    with pytest.raises(DriverFailed, match=r"no-such cannot be mounted: mount: .*does not") as why:
        mount(host, held(device, node="/dev/no-such"), target)
    assert "to repair it" not in str(why.value)


def test_what_somebody_unmounts_in_between_is_not_said_to_be_mounted(
    host: Host, device: LoopDevice, target: str
) -> None:
    def and_gone(argv: Sequence[str], timeout: float, **more: Any) -> Finished:
        done = host(argv, timeout, **more)
        umount(target)
        return done

    with pytest.raises(DriverFailed, match=f"was mounted at {target}, and is not there now"):
        mount(and_gone, held(device), target)


def test_what_cannot_be_made_read_only_is_an_error(
    host: Host, device: LoopDevice, target: str
) -> None:
    """The pod may not write to it: better that it does not start."""

    def not_again(argv: Sequence[str], timeout: float, **more: Any) -> Finished:
        return host(["false"] if "remount,bind,ro" in argv else argv, timeout, **more)

    with pytest.raises(DriverFailed, match=f"{target} cannot be made read-only: exit status 1"):
        mount(not_again, held(device, read_only=True), target)


def test_another_devices_directory_is_given_to_no_group(
    host: Host, device: LoopDevice, target: str
) -> None:
    """Unmounted, or mounted over, between the mount and this."""
    mount(host, held(device), target)
    before = os.stat(target).st_ctime_ns
    with pytest.raises(DriverFailed, match=f"is not mounted at {target} any more"):
        give_to_group("7:99999", target, 2000)
    assert os.stat(target).st_ctime_ns == before


def test_a_target_that_is_mounted_again_and_again_is_given_up(
    host: Host, device: LoopDevice, target: str
) -> None:
    mount(host, held(device), target)
    for _ in range(16):
        bind(target, target, flags=MS_BIND)
    with pytest.raises(DriverFailed, match=f"{target} is mounted again and again"):
        unmount(host, target, {device.number})
    assert unmount(host, target, {device.number})
    assert read_mount_table().at(target) is None


def test_a_filesystem_is_made_by_one_command(host: Host) -> None:
    """E-FV-22: `mkfs -t TYPE DEVICE`, ours with what we know of the size; and its error text.

    One that somebody has mounted is not made anew, whatever mkfs would do.
    """
    with loop_device(64 << 20) as device:
        make_filesystem(host, device.path, device.number, "ext4", options=("-m", "0"))
        (argv,) = host.ran()
        assert (argv[0], argv[-1]) == ("mkfs.ext4", device.path)
        assert argv[-3:-1] == ["-m", "0"]
        with pytest.raises(BackendFailed, match=r"mkfs.ext4: .*inode"):
            make_filesystem(host, device.path, device.number, "ext4", options=("-N", "99999999999"))
        with pytest.raises((BackendFailed, OSError)):
            make_filesystem(host, device.path, "7:99999", "ext4")
        assert len(host.ran()) == 1, "of another device nothing is made"
