"""A pool of images in a temporary directory, and a look at what is left of it: for tests."""

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localvolume.backends.image.backend import ImageBackend
from localvolume.backends.model import Record
from localvolume.host.filesystem.freezing import notes_in, thaw_left
from localvolume.host.loop.attach import Loop, attached, detach, look
from localvolume.host.process import commands
from localvolume.host.process.commands import Finished
from localvolume.host.process.commandsync import Run, on_loop
from tests.suite.units import MIB
from tests.suite.until import until

from .support_devices import command, mounted

__all__ = [
    "ImagePool",
    "command",
    "copied",
    "fill",
    "image_pool",
    "killed_at",
    "mounted",
    "running",
    "snapshotted",
    "thaw_all",
]

#: For how many seconds a copy may hold up its origin's users; a busy machine takes its time.
STALL = 600.0

POOL_ID = "0a0a0a0a-0000-4000-8000-000000000001"


@contextlib.contextmanager
def running() -> Iterator[Run]:
    """The host's commands on an event loop of a thread of its own, as the agent has them."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield on_loop(loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(120)
        loop.close()


def run_here(argv: Any, timeout: float, **more: Any) -> Finished:
    """The same in a process of one thread, which ends whenever the test says so."""
    return asyncio.run(commands.run(argv, timeout=timeout, **more))


# They change nothing, so a death before them is one before the next that does.
_HARMLESS = frozenset(
    """stat lstat fstat readlink listdir scandir access fspath read pread lseek fstatvfs statvfs
    close getpid geteuid major minor makedev""".split()  # noqa: SIM905 - two lines of many
)


def thaw_all(notes: Path) -> dict[str, str]:
    """Thaw by all notes what the dead left frozen, as an agent does; what failed, by device."""
    failed: dict[str, str] = {}
    for name in notes_in(str(notes)):
        failed |= thaw_left(name, str(notes))
    return failed


@dataclass
class ImagePool:
    """A pool, open, and its backend."""

    root: Path
    fd: int
    links: Path
    backend: ImageBackend
    #: Whether its class lets all data be copied.
    full_copies: bool = False

    @property
    def path(self) -> str:
        return str(self.root)

    @property
    def images(self) -> Path:
        return self.root / ".localvolume/images"

    @property
    def trash(self) -> Path:
        return self.root / ".localvolume/trash"

    def record(self, name: str = "pvc-1", mib: float = 32, **fields: Any) -> Record:
        told: dict[str, Any] = {"state": "making", "size_bytes": int(mib * MIB)}
        told |= {"full_copies": self.full_copies, **fields}
        return Record(name=name, backend="image", directory="", **told)

    def make(self, name: str = "pvc-1", mib: float = 32, **fields: Any) -> Record:
        """A volume that is made and attached, as the pool would have it."""
        made = self.backend.make(self.fd, self.path, self.record(name, mib, **fields))
        made = _with(made, state="made")
        self.backend.attach(self.fd, self.path, made)
        return made

    def attach(self, record: Record) -> None:
        self.backend.attach(self.fd, self.path, record)

    def grow(self, record: Record, mib: float) -> Record:
        return self.backend.grow(self.fd, self.path, record, int(mib * MIB))

    def retire(self, record: Record) -> Record:
        gone = _with(record, state="removed", trash=f"{record.name}.12345678")
        self.backend.retire(self.fd, self.path, gone)
        return gone

    def purge(self, record: Record, **more: Any) -> None:
        more.setdefault("stop", threading.Event())
        self.backend.purge(self.fd, self.path, record, **more)

    def thawed(self) -> None:
        """Wait until nothing is frozen that a killed process froze."""
        notes = self.links / ".frozen"
        until(lambda: thaw_all(notes) == {} and not list(notes.glob("*")))

    def link(self, record: Record) -> Path:
        return self.links / POOL_ID / record.name

    def node(self, record: Record) -> str:
        """The loop device that the link leads to."""
        return os.readlink(self.link(record))

    def loop(self, record: Record) -> Loop:
        found = look(self.node(record))
        assert found is not None
        return found

    def image(self, record: Record) -> Path:
        return self.images / f"{record.name}.img"

    def loops(self) -> list[Loop]:
        """The loop devices that stand on any file of the pool, links or not."""
        files = {
            (found.st_dev, found.st_ino)
            for place in (self.images, self.trash)
            for found in (entry.stat() for entry in place.iterdir())
        }
        under = {
            f"/dev/{path.parent.parent.name}"
            for path in Path("/sys/block").glob("loop*/loop/backing_file")
            if _text(path).startswith(f"{self.root}/")
        }
        return [loop for loop in attached() if loop.behind in files or loop.node in under]

    def reboot(self) -> None:
        """What a reboot does: no loop device is attached, and /run is empty."""
        for loop in self.loops():
            detach(loop)
        command("rm", "-rf", self.links)


def snapshot_of(origin: Record, name: str = "snap-1", **fields: Any) -> Record:
    """The record of a snapshot that is to be cut, as a call asks for it."""
    holds = {"snapshot_of": origin.name, "made_from": "", "holds_bytes": origin.size_bytes}
    return _with(origin, **{"name": name, "state": "making", "inode": 0, **holds, **fields})


def copy_of(origin: Record, name: str = "pvc-2", **fields: Any) -> Record:
    """The record of a volume that is to be made with the content of another, or of a snapshot."""
    own = {"snapshot_of": "", "made_from": origin.name, "cut_at": 0, "holds_bytes": 0}
    return _with(origin, **{"name": name, "state": "making", "inode": 0, **own, **fields})


def snapshotted(pool: ImagePool, origin: Record, name: str = "snap-1", **fields: Any) -> Record:
    """A snapshot, cut and on record."""
    return _copied(pool, snapshot_of(origin, name, **fields), origin)


def copied(pool: ImagePool, name: str, origin: Record, *, mib: float = 0, **fields: Any) -> Record:
    """A volume with the content of another, made, attached and on record."""
    size = int(mib * MIB) or origin.size_bytes
    return _copied(pool, copy_of(origin, name, size_bytes=size, **fields), origin)


def _copied(pool: ImagePool, record: Record, origin: Record) -> Record:
    made = _with(pool.backend.copy(pool.fd, pool.path, record, origin), state="offered")
    pool.attach(made)
    return made


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _with(record: Record, **fields: Any) -> Record:
    return dataclasses.replace(record, **fields)


@contextlib.contextmanager
def image_pool(root: Path, run: Run, *, full_copies: bool = False) -> Iterator[ImagePool]:
    """A pool in `root/pool`; at its end nothing of it may be attached unless a link says so."""
    place, links = root / "pool", root / "run"
    for part in ("images", "trash", "making", "records"):
        (place / ".localvolume" / part).mkdir(parents=True, mode=0o700)
    marker = {"version": 1, "id": POOL_ID, "backend": "image"}
    (place / ".localvolume/pool.json").write_text(json.dumps(marker))
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    backend = ImageBackend(run, str(links), STALL, f"{links}/.frozen")
    pool = ImagePool(place, fd, links, backend, full_copies)
    try:
        yield pool
        pool.thawed()
        linked = {os.readlink(link) for link in links.glob("*/*")}
        leaked = [loop for loop in pool.loops() if loop.node not in linked]
        assert not leaked, f"attached and not linked: {leaked}"
    finally:
        pool.reboot()
        os.close(fd)
        assert not pool.loops()


def fill(where: Path, name: str = "full") -> int:
    """Write until the filesystem is full; how many bytes it took."""
    written = 0
    piece = os.urandom(1 << 16)
    fd = os.open(where / name, os.O_WRONLY | os.O_CREAT)
    try:
        for size in (1 << 20, 1 << 16, 4096):
            data = (piece * 16)[:size]
            with contextlib.suppress(OSError):
                while True:
                    written += os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    return written


def killed_at(step: int, executor: Callable[[ImageBackend], object], links: Path) -> bool:
    """Do something in a child that is killed by -9 right before its n-th call of the system.

    Counted are the calls that the backend and what it uses make themselves, and the commands they
    run. Whether it was killed: False says that it did it all in fewer calls.
    """
    child = os.fork()
    if child == 0:
        try:
            _die_at(step, executor, links)
        except BaseException:  # noqa: BLE001 - nothing may go on in a child
            traceback.print_exc()
            os._exit(2)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0, "it failed instead"
    return False


def _die_at(step: int, executor: Callable[[ImageBackend], object], links: Path) -> None:
    left = step

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def look(frame: Any, event: str, called: Any) -> None:
        if (
            event == "c_call"
            and getattr(called, "__module__", "") in ("posix", "fcntl")
            and called.__name__ not in _HARMLESS
            and "/localvolume/" in frame.f_code.co_filename
        ):
            count()

    def run(argv: Any, timeout: float, **more: Any) -> Finished:
        sys.setprofile(None)
        count()
        try:
            return run_here(argv, timeout, **more)
        finally:
            sys.setprofile(look)

    backend = ImageBackend(run, str(links), STALL, f"{links}/.frozen")
    sys.setprofile(look)
    executor(backend)
    sys.setprofile(None)
