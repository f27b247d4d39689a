"""What disks hold and who uses them, on real devices: whatever is on one, it is never in a plan."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from localvolume.host.block.disklist import list_disks
from tests.host.support_devices import LoopDevice, command, loop_device, mounted
from tests.host.support_disks import Bench
from tests.suite.podmounts import host, pod
from tests.suite.units import GIB, MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4")


@pytest.fixture
def disk(made: Bench, stack: contextlib.ExitStack) -> LoopDevice:
    """One blank disk, that would be formatted as it is."""
    made_disk = made.disk(stack)
    assert made.row(made_disk).verdict == "format"
    return made_disk


def poke(disk: LoopDevice, at: int, data: bytes = b"tenant") -> None:
    with open(disk.path, "r+b") as file:
        file.seek(at)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


class TestContents:
    @pytest.mark.parametrize(
        ("argv", "holds"),
        [
            (["mkfs.ext4", "-q", "-F"], "ext4"),
            pytest.param(["mkfs.xfs", "-q", "-f", "-K"], "xfs", marks=pytest.mark.needs("xfs")),
            (["mkswap"], "swap"),
            pytest.param(
                ["pvcreate", "-q", "--config", "devices{use_devicesfile=0}"],
                "LVM2_member",
                marks=pytest.mark.needs("pvcreate"),
            ),
        ],
    )
    def test_a_signature(self, made: Bench, disk: LoopDevice, argv: list[str], holds: str) -> None:
        command(*argv, disk.path)
        row = made.row(disk)
        assert (row.verdict, row.code, row.reason) == ("hold", "signature", f"it holds {holds}")

    def test_a_member_of_a_raid(self, made: Bench, disk: LoopDevice) -> None:
        # The superblock of version 1.0 at the end of the device, as mdadm writes it.
        block = bytearray(256)
        block[0:4] = (0xA92B4EFC).to_bytes(4, "little")
        block[4:8] = (1).to_bytes(4, "little")
        place = (made.size - 8192) // 4096 * 4096
        block[0x90:0x98] = (place // 512).to_bytes(8, "little")
        poke(disk, place, bytes(block))
        row = made.row(disk)
        assert row.verdict == "hold"
        assert row.code in ("signature", "data")

    def test_a_partition_table(self, made: Bench, disk: LoopDevice) -> None:
        disk.write_table("label: gpt\n")
        row = made.row(disk)
        assert (row.code, row.reason) == ("signature", "it holds gpt")

    def test_what_is_left_of_a_partition_table_at_the_end(
        self, made: Bench, disk: LoopDevice
    ) -> None:
        disk.write_table("label: gpt\n")
        poke(disk, 0, bytes(MIB))
        row = made.row(disk)
        assert row.verdict == "hold"
        assert row.code in ("signature", "data")

    @pytest.mark.parametrize("place", [0, MIB - 8, -MIB, -8])
    def test_data_without_a_signature_at_either_end(
        self, made: Bench, disk: LoopDevice, place: int
    ) -> None:
        at = place % made.size
        poke(disk, at)
        row = made.row(disk)
        assert (row.code, row.disk.inside and row.disk.inside.data_at) == ("data", at)
        assert "blkdiscard -z" in row.reason

    def test_data_in_the_middle_of_it(self, made: Bench, disk: LoopDevice) -> None:
        # Encrypted without a header, or a database on the raw disk: written over and over.
        with open(disk.path, "r+b") as file:
            file.seek(made.size // 3)
            file.write(os.urandom(64 * MIB))
        assert made.row(disk).code == "data"

    def test_a_disk_that_cannot_be_read(
        self, made: Bench, disk: LoopDevice, stack: contextlib.ExitStack
    ) -> None:
        # Its file has become shorter: reads beyond fail.
        os.truncate(disk.backing, 512 * MIB)
        try:
            row = made.row(disk)
            assert (row.verdict, row.code) == ("hold", "unknown")
        finally:
            os.truncate(disk.backing, made.size)


class TestUse:
    def test_partitions(self, made: Bench, disk: LoopDevice) -> None:
        disk.partition("+64M")
        try:
            row = made.row(disk)
            assert (row.code, row.verdict) == ("partitions", "hold")
            assert f"{disk.name}p1" in row.reason
        finally:
            disk.forget_partitions()

    def test_mounted(self, made: Bench, disk: LoopDevice) -> None:
        disk.format("ext4")
        with mounted(disk) as where:
            row = made.row(disk)
            assert row.code == "mounts"
            assert str(where) in row.reason

    def test_mounted_in_another_mount_namespace(self, made: Bench, disk: LoopDevice) -> None:
        disk.format("ext4")
        place = made.directory.parent / "elsewhere"
        place.mkdir()
        script = f"mount {disk.path} {place} && echo mounted && read end"
        with subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as other:
            assert other.stdout
            assert other.stdout.readline() == b"mounted\n"
            # Even with nothing on it that can be recognised.
            poke(disk, 0, bytes(2 * MIB))
            row = made.row(disk)
            assert (row.verdict, row.code) == ("hold", "exclusive")
            assert other.stdin
            other.stdin.close()
            other.wait(120)

    def test_open_exclusively(self, made: Bench, disk: LoopDevice) -> None:
        fd = os.open(disk.path, os.O_RDONLY | os.O_EXCL)
        try:
            assert made.row(disk).code == "exclusive"
        finally:
            os.close(fd)
        assert made.row(disk).verdict == "format"

    def test_another_agent_at_work_on_it(self, made: Bench, disk: LoopDevice) -> None:
        script = (
            "import sys; from localvolume.host.locks import lock_device;"
            f"assert lock_device({disk.path!r}) is not None; print('locked', flush=True);"
            "sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": "src"},
        ) as other:
            assert other.stdout
            assert other.stdout.readline() == b"locked\n"
            row = made.row(disk)
            assert (row.code, "another process" in row.reason) == ("exclusive", True)
            assert other.stdin
            other.stdin.close()
            other.wait(120)

    def test_a_loop_device_on_it(
        self, made: Bench, disk: LoopDevice, stack: contextlib.ExitStack
    ) -> None:
        with loop_device(backing=Path(disk.path)) as above:
            row = made.row(disk)
            assert row.code == "users"
            assert above.path in row.reason

    def test_swap(self, made: Bench, disk: LoopDevice) -> None:
        command("mkswap", disk.path)
        done = subprocess.run(["swapon", disk.path], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"this kernel takes no swap on a loop device ({done.stderr.strip()})")
        try:
            row = made.row(disk)
            assert row.verdict == "hold"
            assert row.code in ("users", "exclusive")
        finally:
            command("swapoff", disk.path)

    def test_read_only(self, made: Bench, stack: contextlib.ExitStack, tmp_path: Path) -> None:
        backing = tmp_path / "read-only"
        with backing.open("xb") as file:
            file.truncate(made.size)
        disk = stack.enter_context(loop_device(backing=backing, read_only=True))
        assert made.row(disk).code == "read-only"

    def test_offered_already(self, made: Bench, disk: LoopDevice) -> None:
        (made.directory / "raw-1").symlink_to(disk.path)
        row = made.row(disk)
        assert row.code == "offered"
        assert f"{made.directory}/raw-1" in row.reason

    def test_named_by_a_persistent_volume(self, made: Bench, disk: LoopDevice) -> None:
        made.named = {disk.path: "pv-of-somebody"}
        row = made.row(disk)
        assert (row.code, row.reason) == ("named", "PersistentVolume pv-of-somebody names it")

    def test_its_class_looks_elsewhere(self, made: Bench, disk: LoopDevice) -> None:
        """Neither formatted nor mounted again: the host would have it in another directory."""
        made.pod = pod(host(str(made.directory), "/host/other"))
        row = made.row(disk)
        assert (row.verdict, row.code) == ("hold", "misplaced")
        assert "is /host/other of the host" in row.reason
        made.pod = pod(host(str(made.directory), "/host/fast"))
        assert made.row(disk).verdict == "format"

    def test_its_place_is_named_by_a_persistent_volume(self, made: Bench, disk: LoopDevice) -> None:
        text = made.plan().text
        path = text.split('"path":"')[1].split('"')[0]
        made.named = {path: "pv-of-old"}
        assert made.row(disk).reason == "PersistentVolume pv-of-old names its place"


class TestPlace:
    def place(self, made: Bench) -> Path:
        name = made.plan().text.split('"path":"/host/fast/')[1].split('"')[0]
        return made.directory / name

    @pytest.mark.parametrize(
        "take",
        [
            lambda path: path.write_text("somebody's"),
            lambda path: path.symlink_to("/nowhere"),
            lambda path: (path.mkdir(), (path / "file").write_text("somebody's")),
        ],
    )
    def test_it_is_taken(
        self, made: Bench, disk: LoopDevice, take: Callable[[Path], object]
    ) -> None:
        take(self.place(made))
        row = made.row(disk)
        assert (row.code, "is there already" in row.reason) == ("place", True)

    def test_the_empty_directory_of_an_earlier_mount(self, made: Bench, disk: LoopDevice) -> None:
        self.place(made).mkdir()
        assert made.row(disk).verdict == "format"

    def test_a_mount_there_would_never_reach_the_host(self, made: Bench, disk: LoopDevice) -> None:
        command("mount", "--make-private", made.directory)
        row = made.row(disk)
        assert (row.code, "Bidirectional" in row.reason) == ("place", True)
        # A link in it does.
        made.fs_type = ""
        assert made.row(disk).code == "by-id"

    def test_there_is_no_such_directory(self, made: Bench, disk: LoopDevice) -> None:
        made.directory = made.directory / "none"
        assert made.row(disk).code == "place"

    def test_it_is_a_file(self, made: Bench, disk: LoopDevice) -> None:
        made.directory = made.directory / "file"
        made.directory.write_text("somebody's")
        row = made.row(disk)
        assert (row.code, "is not a directory" in row.reason) == ("place", True)


class TestPartitions:
    def test_only_where_they_are_asked_for(self, made: Bench, stack: contextlib.ExitStack) -> None:
        disk = stack.enter_context(loop_device(3 * GIB))
        one, two = disk.partition("+1100M", "+1100M")
        stack.callback(disk.forget_partitions)
        made.size, made.most = 1100 * MIB, 1100 * MIB
        assert not [row for row in made.plan().rows if row.disk.node in (one, two)]
        made.partitions = True
        assert [made.row(node).verdict for node in (one, two)] == ["format", "format"]
        command("mkfs.ext4", "-q", one)
        assert [made.row(node).verdict for node in (one, two)] == ["hold", "format"]


def test_loop_devices_are_never_meant_unless_they_are_named(made: Bench, disk: LoopDevice) -> None:
    (raw,) = [raw for raw in list_disks() if raw.node == disk.path]
    assert (raw.transport, raw.virtual, raw.parent) == ("loop", False, "")
    assert dict(raw.identity)["loopFile"] == str(disk.backing)
    assert raw.size_bytes == made.size


def test_links_by_id_are_found(made: Bench, disk: LoopDevice) -> None:
    (made.by_id / "wwn-0x5").symlink_to(disk.path)
    (made.by_id / "dangling").symlink_to("/nowhere")
    (raw,) = [raw for raw in list_disks(str(made.by_id)) if raw.node == disk.path]
    assert raw.links == ("wwn-0x5",)
