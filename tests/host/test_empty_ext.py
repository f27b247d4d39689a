"""Whether an ext filesystem on a device is empty: what mkfs leaves is, and nothing else."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from localvolume.host.block.blockdev import NotABlockDevice
from localvolume.host.filesystem.extempty import CannotTell, why_not_empty
from localvolume.host.process.commands import CommandMissing, Finished
from localvolume.host.process.commandsync import Run
from tests.host.support_devices import LoopDevice, command, flush, formatted, loop_device, mounted
from tests.host.support_images import running
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4")


@pytest.fixture
def run() -> Iterator[Run]:
    with running() as found:
        yield found


def look(device: LoopDevice, run: Run) -> str | None:
    before = Path(device.path).read_bytes()
    found = why_not_empty(device.path, device.number, run)
    assert Path(device.path).read_bytes() == before, "looking has written"
    return found


def debugfs(device: LoopDevice, *requests: str) -> None:
    """Write as somebody who has the device's bytes, checksums included."""
    for request in requests:
        command("debugfs", "-w", "-R", request, device.path)


@pytest.mark.parametrize(
    ("kind", "options", "size"),
    [
        ("ext2", (), 16 * MIB),
        ("ext2", ("-b", "4096"), 64 * MIB),
        ("ext4", (), 16 * MIB),
        ("ext4", (), 640 * MIB),
        ("ext4", ("-b", "2048"), 64 * MIB),
        ("ext4", ("-t", "ext3"), 300 * MIB),
        ("ext4", ("-O", "^has_journal"), 64 * MIB),
        ("ext4", ("-O", "^resize_inode,^flex_bg,^64bit"), 64 * MIB),
        ("ext4", ("-O", "orphan_file,metadata_csum_seed"), 64 * MIB),
        ("ext4", ("-m", "0", "-L", "data", "-T", "largefile"), 64 * MIB),
        # mkfs leaves out a last group that would be too small, and what is less than a page.
        ("ext4", ("-b", "1024"), 131078 << 10),
        ("ext4", ("-b", "4096"), 64 * MIB + 512),
        ("ext4", ("-b", "4096"), 132 * MIB),
    ],
)
def test_what_mkfs_leaves_is_empty(
    kind: str, options: tuple[str, ...], size: int, run: Run
) -> None:
    with formatted(kind, *options, size=size) as device:
        assert look(device, run) is None


def test_what_was_emptied_again_is_empty(run: Run, tmp_path: Path) -> None:
    with formatted("ext4") as device:
        with mounted(device, tmp_path) as where:
            (where / "file").write_bytes(b"x" * MIB)
            flush(where)
            (where / "file").unlink()
            (where / "lost+found").rmdir()
        assert look(device, run) is None


def _a_file(where: Path) -> None:
    (where / "file").write_text("somebody's")


def _within_lost_and_found(where: Path) -> None:
    (where / "lost+found/#12").mkdir()


def _attribute(where: Path) -> None:
    os.setxattr(where, "user.note", b"somebody's")


def _attribute_of_lost_and_found(where: Path) -> None:
    os.setxattr(where / "lost+found", "trusted.note", b"somebody's")


def _names_of_before(where: Path) -> None:
    for number in range(2000):
        (where / f"somebody's-{number}").touch()
    for number in range(2000):
        (where / f"somebody's-{number}").unlink()


def _a_file_in_place_of_lost_and_found(where: Path) -> None:
    (where / "lost+found").rmdir()
    (where / "file").write_text("somebody's")


def _a_file_called_lost_and_found(where: Path) -> None:
    (where / "lost+found").rmdir()
    (where / "lost+found").write_text("somebody's")


def _another_name(where: Path) -> None:
    (where / "lost+found").rename(where / "some\nbody's")


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (_a_file_in_place_of_lost_and_found, "with 'file' in it"),
        (_a_file_called_lost_and_found, "with 'lost+found' in it"),
        (_a_file, "with 1 files or directories in it"),
        (_within_lost_and_found, "with 1 files or directories in it"),
        (_attribute, "with extended attributes on its directories"),
        (_attribute_of_lost_and_found, "with extended attributes on its directories"),
        (_names_of_before, "blocks more in use than an empty one has"),
    ],
)
def test_what_was_used_is_not(
    use: Callable[[Path], None], said: str, run: Run, tmp_path: Path
) -> None:
    with formatted("ext4") as device:
        with mounted(device, tmp_path) as where:
            use(where)
        assert said in (look(device, run) or "")


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        (("feature needs_recovery",), "whose journal is to be replayed"),
        (("ssv state 0",), "which was not unmounted"),
        (("ssv state 3",), "with errors on record"),
        (("ssv error_count 1",), "with errors on record"),
        (("ssv last_orphan 12",), "with files that were deleted while they were open"),
        (("feature orphan_present",), "with files that were deleted while they were open"),
        (("feature inline_data",), "with features that are not looked into (incompat 0x8000)"),
        (("feature quota",), "with features that are not looked into (ro_compat 0x100)"),
        (("feature sparse_super2",), "with features that are not looked into (compat 0x200)"),
        (("feature ^sparse_super",), "without the feature sparse_super"),
        (("ssv journal_inum 12",), "whose journal is elsewhere"),
        (("ssv blocks_per_group 0",), "whose superblock makes no sense"),
    ],
)
def test_what_is_not_at_rest_or_not_known_is_not(
    requests: tuple[str, ...], said: str, run: Run
) -> None:
    with formatted("ext4") as device:
        debugfs(device, *requests)
        assert said in (look(device, run) or "")


def test_what_is_not_as_large_as_its_device_is_not(run: Run) -> None:
    with loop_device(128 * MIB) as device:
        command("mkfs.ext4", "-q", "-F", device.path, "64M")
        assert "which is smaller than its device" in (look(device, run) or "")
    with loop_device(128 * MIB) as device:
        device.format("ext4")
        device.detach()
        with device.backing.open("r+b") as file:
            file.truncate(64 * MIB)
        device.attach()
        assert "which is larger than its device" in (look(device, run) or "")


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        # A file whose name is taken away: its inode and blocks stay, and the counts are made fit.
        (
            (
                "write {file} file",
                "unlink file",
                "ssv free_inodes_count {inodes}",
                "ssv free_blocks_count {blocks}",
            ),
            "in which e2fsck finds something to mend",
        ),
        # Its inode and blocks are called free, and the name stays.
        (
            (
                "write {file} file",
                "freei file",
                "ssv free_inodes_count {inodes}",
                "ssv free_blocks_count {blocks}",
            ),
            "in which e2fsck finds something to mend",
        ),
        # Blocks of nobody, which the next tenant's files would not get, or would share.
        (("setb 8000 3",), "in which e2fsck finds something to mend"),
        (("freeb 10 3",), "in which e2fsck finds something to mend"),
        # Its blocks are given to an inode that never has a name: the boot loader's.
        (
            (
                "write {file} file",
                "copy_inode file <5>",
                "unlink file",
                "freei <12>",
                "clri <12>",
                "ssv free_inodes_count {inodes}",
            ),
            "blocks more in use than an empty one has",
        ),
    ],
)
def test_what_only_looks_empty_is_not(
    requests: tuple[str, ...], said: str, run: Run, tmp_path: Path
) -> None:
    (file := tmp_path / "data").write_bytes(os.urandom(20_000))
    with formatted("ext4") as device:
        counts = dict(
            line.split(": ", 1)
            for line in command("debugfs", "-R", "stats -h", device.path).splitlines()
            if ": " in line
        )
        debugfs(
            device,
            *(
                one.format(
                    file=file,
                    inodes=counts["Free inodes"].strip(),
                    blocks=counts["Free blocks"].strip(),
                )
                for one in requests
            ),
        )
        assert said in (look(device, run) or "")


def test_a_damaged_one_is_not(run: Run) -> None:
    with formatted("ext4") as device:
        fd = os.open(device.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, bytes(1024), 2048)  # the descriptors of its groups
            os.fsync(fd)
        finally:
            os.close(fd)
        assert look(device, run) == "in which e2fsck finds something to mend"


def test_what_is_used_meanwhile_is_not_told(run: Run, tmp_path: Path) -> None:
    with (
        formatted("ext4") as device,
        mounted(device, tmp_path, options="ro"),
        pytest.raises(CannotTell, match="used while it was looked into"),
    ):
        why_not_empty(device.path, device.number, run)


def test_another_device_is_not_opened(run: Run, tmp_path: Path) -> None:
    with formatted("ext4") as device:
        with pytest.raises(NotABlockDevice, match="is not the device"):
            why_not_empty(device.path, "7:0", run)
        with pytest.raises(NotABlockDevice, match="is not the device"):
            why_not_empty(str(tmp_path), device.number, run)


def test_a_name_that_cannot_be_read_is_not_told(run: Run, tmp_path: Path) -> None:
    with formatted("ext4") as device:
        with mounted(device, tmp_path) as where:
            _another_name(where)
        with pytest.raises(CannotTell, match="lists what cannot be read"):
            look(device, run)


def test_what_changes_meanwhile_is_not_told(run: Run) -> None:
    with formatted("ext4") as device:

        def changing(argv: Sequence[str], timeout: float, **more: Any) -> Finished:
            debugfs(device, "ssv mnt_count 7")
            return run(argv, timeout, **more)

        with pytest.raises(CannotTell, match="changed while it was looked into"):
            why_not_empty(device.path, device.number, changing)


VERSION = "debugfs 1.47.0 (5-Feb-2023)\n"
LACKS = CommandMissing("it", "no such program")


def ended(status: int, out: str = "", err: str = "", *, truncated: bool = False) -> Finished:
    return Finished((), status, out, err, truncated, 0.1)


@pytest.mark.parametrize(
    ("program", "failure", "said"),
    [
        ("e2fsck", LACKS, "this agent's image lacks it"),
        ("e2fsck", ended(8, err="Device or resource busy"), "Device or resource busy"),
        ("e2fsck", ended(-9), "exit status -9"),
        ("e2fsck", ended(0, truncated=True), "says more than is read"),
        ("debugfs", LACKS, "this agent's image lacks it"),
        ("debugfs", ended(1, err=VERSION), "debugfs 1.47.0"),
        ("debugfs", ended(0, truncated=True), "says more than is read"),
        ("debugfs", ended(0, err=VERSION), "lists no directory"),
        # So it ends where it cannot open the device.
        (
            "debugfs",
            ended(0, "/2/040755/0/0/.//\n", f"{VERSION}ls: Filesystem not open"),
            "Filesystem not open",
        ),
    ],
)
def test_without_an_answer_nobody_knows(
    program: str, failure: CommandMissing | Finished, said: str, run: Run
) -> None:
    def failing(argv: Sequence[str], timeout: float, **more: Any) -> Finished:
        if argv[0] != program:
            return run(argv, timeout, **more)
        if isinstance(failure, Finished):
            return failure
        raise failure

    with formatted("ext4") as device, pytest.raises(CannotTell, match=said):
        why_not_empty(device.path, device.number, failing)


def test_what_takes_too_long_is_not_known(run: Run) -> None:
    def slow(argv: Sequence[str], timeout: float, **more: Any) -> Finished:
        return run(["sleep", "60"], 0.1)

    with formatted("ext4") as device, pytest.raises(CannotTell, match="not finished after"):
        why_not_empty(device.path, device.number, slow)
