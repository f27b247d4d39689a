"""Loop devices, filesystems and mounts for tests: context managers that always clean up.

All need root; mark tests with ``needs("root", "loop")`` and the filesystem. Nothing is mounted over
or made outside temporary directories. What cannot be removed at the end fails the test, after
it has been detached as far as the kernel allows, so that nothing stays behind. A loop device goes
even when the process is killed (a mount does not).

    with formatted("ext4") as device, mounted(device) as where:
        (where / "file").write_text("tenant data")
"""

import contextlib
import errno
import fcntl
import os
import random
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.suite.programs import require
from tests.suite.units import MIB
from tests.suite.until import until

# linux/loop.h; the flags are at byte 52 of struct loop_info64
_LOOP_CTL_ADD, _LOOP_CTL_REMOVE = 0x4C80, 0x4C81
_LOOP_SET_STATUS64, _LOOP_GET_STATUS64, _LO_FLAGS_AUTOCLEAR = 0x4C04, 0x4C05, 4

#: From here on are the loop devices that tests have to themselves.
_FIRST_SPARE = 10_000
#: So many below are free for others: more than take one while a device of ours is detached.
_LOWER_ONES = 16

#: Smallest comfortable sizes, in bytes; backing files are sparse.
SIZES = {"ext4": 64 * MIB, "ext2": 64 * MIB, "xfs": 320 * MIB, "btrfs": 128 * MIB}

_MKFS = {
    # Without discard: the backing file is sparse already.
    "ext2": ("mkfs.ext2", "-q", "-F", "-E", "nodiscard"),
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "nodiscard"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
    "btrfs": ("mkfs.btrfs", "-q", "-f", "-K"),
}


def command(*argv: str | os.PathLike[str], stdin: str = "", wait: float = 30.0) -> str:
    """Run a tool and return its output; raises AssertionError with what it said when it fails.

    Skips the test where this machine lacks the tool. Tries again for ``wait`` seconds where the
    kernel finds a device or a mount busy: an agent at work, or udev, looks at a disk of a test's
    for a moment whenever it likes.
    """
    words = [os.fspath(word) for word in argv]
    require(words[0])

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=60)

    def is_over(done: subprocess.CompletedProcess[str]) -> bool:
        told = done.stderr or done.stdout
        held = "busy" in told or "apparently in use" in told  # the latter is what mkfs says
        return done.returncode == 0 or not held

    done = until(run, is_over, seconds=wait) if wait else run()
    if done.returncode != 0:
        raise AssertionError(f"{argv} exited {done.returncode}: {done.stderr or done.stdout}")
    return done.stdout


def flush(where: str | os.PathLike[str]) -> None:
    """Have all of the filesystem on disk. sync(2) would also wait for those that another test has
    frozen, and keep it from opening their devices to end that: both would wait for ever. What
    calls it is not started (tests/decisions/test_frozen.py)."""
    command("sync", "-f", where)


@dataclass
class LoopDevice:
    """A loop device over a sparse file."""

    path: str
    backing: Path
    #: Options of losetup to use again at ``attach``.
    options: tuple[str, ...] = ()
    #: Keeps it attached: when this process dies, however, the kernel detaches it.
    _holder: int = -1

    def __post_init__(self) -> None:
        self._hold()

    @property
    def name(self) -> str:
        """The kernel's name: ``loop3``."""
        return os.path.basename(self.path)

    @property
    def number(self) -> str:
        """``major:minor``."""
        found = os.stat(self.path).st_rdev
        return f"{os.major(found)}:{os.minor(found)}"

    def format(self, fstype: str, *options: str) -> None:
        """Make a filesystem anew."""
        command(*_MKFS[fstype], *options, self.path)

    def detach(self) -> None:
        """Detach, and wait until the kernel has let go of it."""
        if self._holder >= 0:
            os.close(self._holder)
            self._holder = -1
        _detach(self.path, self.backing)

    def attach(self, *, at: str | None = None) -> str:
        """Attach the backing file again, where it was or at ``at`` (``/dev/loop7``)."""
        self.path = _attach(self.backing, self.options, at or self.path)
        self._hold()
        return self.path

    def _hold(self) -> None:
        self._holder = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        status = bytearray(fcntl.ioctl(self._holder, _LOOP_GET_STATUS64, bytes(232)))
        flags = struct.unpack_from("=I", status, 52)[0]
        struct.pack_into("=I", status, 52, flags | _LO_FLAGS_AUTOCLEAR)
        fcntl.ioctl(self._holder, _LOOP_SET_STATUS64, bytes(status))

    def partition(self, *sizes: str, label: str = "gpt") -> list[str]:
        """Write a partition table and have the kernel know the partitions: their device paths.

        Tells the kernel through BLKPG, as not every kernel can read partition tables itself.
        """
        self.write_table(f"label: {label}\n" + "".join(f",{size},L\n" for size in sizes))
        command("partx", "--add", self.path)
        return [f"{self.path}p{number}" for number in range(1, len(sizes) + 1)]

    def write_table(self, table: str) -> None:
        """Write a partition table, as sfdisk(8) reads it; the kernel is told nothing.

        Told of it by sfdisk, it would have to write out all filesystems first (see `flush`).
        """
        command("sfdisk", "-q", "--no-reread", "--no-tell-kernel", self.path, stdin=table)

    def forget_partitions(self) -> None:
        """Undo the kernel's side of ``partition``."""
        subprocess.run(["partx", "--delete", self.path], capture_output=True, timeout=60)


def _attach(backing: Path, options: tuple[str, ...], at: str) -> str:
    command("losetup", *options, at, backing)
    return at


def _backing_of(path: str) -> str:
    try:
        text = Path(f"/sys/block/{os.path.basename(path)}/loop/backing_file").read_text()
    except (FileNotFoundError, OSError):
        return ""
    return text.rstrip("\n").removesuffix(" (deleted)")


def _detach(path: str, backing: Path) -> None:
    """Detach ``path`` if it (still) is the device of this backing file, and wait for it."""
    subprocess.run(["partx", "--delete", path], capture_output=True, timeout=60)

    def detached() -> bool:
        if _backing_of(path) != str(backing):
            return True
        subprocess.run(["losetup", "--detach", path], capture_output=True, timeout=60)
        return False

    until(detached, said=lambda: f"{path} is still in use by somebody")


@contextlib.contextmanager
def loop_device(
    size: int = 64 * MIB,
    *,
    backing: Path | None = None,
    read_only: bool = False,
    sector_size: int | None = None,
    offset: int = 0,
    at: str | None = None,
) -> Iterator[LoopDevice]:
    """Attach a sparse file of ``size`` bytes, made for it unless ``backing`` exists already.

    ``at`` is the device to take (``/dev/loop7``), by default one of its own (spare_loop_name).
    ``sector_size`` and ``offset`` are in bytes.
    """
    directory: Path | None = None
    if backing is None:
        directory = Path(tempfile.mkdtemp(prefix="localvolume-loop-")).resolve()
        backing = directory / "disk"
    backing = backing.resolve()
    if not backing.exists():
        with backing.open("xb") as file:
            file.truncate(size)
    options: list[str] = []
    if read_only:
        options.append("--read-only")
    if sector_size:
        options += ["--sector-size", str(sector_size)]
    if offset:
        options += ["--offset", str(offset)]
    try:
        with contextlib.ExitStack() as stack:
            path = _attach(backing, tuple(options), at or stack.enter_context(spare_loop_name()))
            device = LoopDevice(path, backing, tuple(options))
            stack.callback(device.detach)
            yield device
    finally:
        if directory is not None:
            shutil.rmtree(directory)


@contextlib.contextmanager
def spare_loop_name() -> Iterator[str]:
    """A loop device of our own to attach ``at``: who looks for a free one finds a lower number."""
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        number = _add_loop(control)
        try:
            yield f"/dev/loop{number}"
        finally:
            # Somebody, such as udev or an agent, may look at it just now.
            until(
                lambda: _remove_loop(control, number),
                said=lambda: f"/dev/loop{number} stays in use",
            )
    finally:
        os.close(control)


def _add_loop(control: int) -> int:
    _have_lower_ones(control)
    # Linux has room for 2^20 of them; another run of the tests may have any of these.
    chance = random.SystemRandom()
    for _ in range(100):
        with contextlib.suppress(FileExistsError):
            return fcntl.ioctl(control, _LOOP_CTL_ADD, chance.randrange(_FIRST_SPARE, 500_000))
    raise AssertionError("no free number for a loop device")


def _have_lower_ones(control: int) -> None:
    """The kernel has eight, and more only once all are taken: until then it gives whoever looks for
    a free one what there is, and that may be one of ours that is not attached just then."""
    free, number = _lower_ones_free(), 0
    while free < _LOWER_ONES and number < _FIRST_SPARE:
        with contextlib.suppress(FileExistsError):
            fcntl.ioctl(control, _LOOP_CTL_ADD, number)
            free += 1
        number += 1


def _lower_ones_free() -> int:
    names = (name for name in os.listdir("/sys/block") if name.startswith("loop"))
    lower = (name for name in names if int(name.removeprefix("loop")) < _FIRST_SPARE)
    return sum(not _backing_of(name) for name in lower)


def _remove_loop(control: int, number: int) -> bool:
    try:
        fcntl.ioctl(control, _LOOP_CTL_REMOVE, number)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


@contextlib.contextmanager
def formatted(
    fstype: str, *options: str, size: int | None = None, at: str | None = None
) -> Iterator[LoopDevice]:
    """A loop device with a fresh filesystem; ``options`` go to mkfs (``"-L", "name"``)."""
    with loop_device(size or SIZES[fstype], at=at) as device:
        device.format(fstype, *options)
        yield device


@contextlib.contextmanager
def _mount(argv: list[str], where: Path | None) -> Iterator[Path]:
    made = None
    if where is None:
        made = where = Path(tempfile.mkdtemp(prefix="localvolume-mount-")).resolve()
    try:
        command("mount", *argv, where)
        try:
            yield where
        finally:
            unmount(where)
    finally:
        if made is not None:
            # Not rmtree: if anything were still mounted there, its files must survive.
            os.rmdir(made)


def unmount(where: Path) -> None:
    """Unmount the topmost mount at ``where`` if there is one; waits out short users of it.

    Detaches it and raises AssertionError when it stays in use: a test forgot to close something.
    """

    def refusal() -> str:
        done = subprocess.run(["umount", str(where)], capture_output=True, text=True, timeout=60)
        return "" if done.returncode == 0 else done.stderr or f"umount exited {done.returncode}"

    try:
        until(
            refusal,
            lambda said: not said or "not mounted" in said or "no mount point" in said,
            seconds=30,
        )
    except AssertionError:
        subprocess.run(["umount", "--lazy", str(where)], capture_output=True, timeout=60)
        raise


@contextlib.contextmanager
def mounted(
    device: LoopDevice | str, where: Path | None = None, *, options: str = "", fstype: str = ""
) -> Iterator[Path]:
    """Mount a device at ``where``, or in a fresh directory; unmounting within the test is fine."""
    argv = ["-o", options] if options else []
    if fstype:
        argv += ["-t", fstype]
    argv.append(device if isinstance(device, str) else device.path)
    with _mount(argv, where) as path:
        yield path


@contextlib.contextmanager
def filesystem(fstype: str, *options: str, size: int | None = None) -> Iterator[Path]:
    """A fresh filesystem, mounted: ``formatted`` and ``mounted`` in one, or ``tmpfs``."""
    if fstype == "tmpfs":
        with tmpfs(size=size or 64 * MIB) as where:
            yield where
        return
    with formatted(fstype, *options, size=size) as device, mounted(device) as where:
        yield where


@contextlib.contextmanager
def tmpfs(where: Path | None = None, *, size: int = 64 * MIB, options: str = "") -> Iterator[Path]:
    """Mount a tmpfs of ``size`` bytes."""
    extra = f",{options}" if options else ""
    with _mount(["-t", "tmpfs", "-o", f"size={size}{extra}", "tmpfs"], where) as path:
        yield path


@contextlib.contextmanager
def bind(source: Path, where: Path | None = None, *, read_only: bool = False) -> Iterator[Path]:
    """Bind-mount a directory, or a file when ``where`` is an existing file."""
    with _mount(["--bind", str(source)], where) as path:
        if read_only:
            command("mount", "-o", "remount,bind,ro", path)
        yield path


@contextlib.contextmanager
def frozen(where: Path) -> Iterator[None]:
    """Whatever changes the filesystem hangs in the kernel until it is thawed."""
    command("fsfreeze", "--freeze", where)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", where], check=True, timeout=120)


@contextlib.contextmanager
def immutable(path: Path, flag: str = "+i") -> Iterator[Path]:
    """Set an inode flag with chattr, and clear it at the end if the file is still there."""
    command("chattr", flag, path)
    try:
        yield path
    finally:
        subprocess.run(
            ["chattr", flag.replace("+", "-"), str(path)], capture_output=True, timeout=60
        )
