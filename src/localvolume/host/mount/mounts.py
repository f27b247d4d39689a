"""The mount table: read it, ask what is mounted where, and be woken when it changes.

Format: proc_pid_mountinfo(5). Two properties of the file shape this module. It is read in pages, so
a table that changes meanwhile may come back torn; polling the same descriptor tells whether it did.
And it is always readable, so a plain reader on it spins; only EPOLLPRI says that something changed.
"""

import asyncio
import os
import re
import select
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

MOUNTINFO = "/proc/self/mountinfo"

# A node where pods start and stop never holds still for long; each attempt takes milliseconds.
_READ_ATTEMPTS = 8
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


class Mount(NamedTuple):
    """One line of the mount table, octal escapes decoded, foreign bytes as surrogate escapes."""

    mount_id: int
    parent_id: int
    #: ``major:minor`` as ``st_dev`` of the files in it has it (btrfs: an anonymous one, ``0:45``).
    device: str
    #: The directory within the filesystem that is mounted; ``/`` unless it is a bind mount or a
    #: subvolume. Ends in ``//deleted`` when the bound directory has been removed since.
    root: str
    mount_point: str
    #: Options of this mount only; those of the whole filesystem are ``super_options``.
    options: str
    fs_type: str
    #: What the mounter called the source: often a device path, but any text, even the empty one.
    source: str
    #: As the filesystem prints them, escapes not decoded: not every filesystem escapes alike.
    super_options: str = ""
    #: ``shared:1``, ``master:2`` …, separated by spaces; empty for a private mount.
    propagation: str = ""

    @property
    def read_only(self) -> bool:
        """Whether writing is refused here, by this mount or by the filesystem as a whole."""
        return "ro" in self.options.split(",") or "ro" in self.super_options.split(",")


class MountTable:
    """All mounts one process sees, as they were when the table was read.

    Paths asked for are absolute, normalised and without symbolic links (``os.path.realpath``):
    the table knows nothing of links. ``settled`` is false when the mounts kept changing under
    every attempt to read them: what is listed was there, but something may be missing.
    """

    def __init__(self, mounts: list[Mount], *, settled: bool = True) -> None:
        self.all = mounts
        self.settled = settled
        self._at: dict[str, Mount | None] = {}

    def __iter__(self) -> Iterator[Mount]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @cached_property
    def _children(self) -> dict[tuple[int, str], Mount]:
        """Mounts by what they are mounted on; 0 stands for a parent outside our view."""
        ids = {mount.mount_id for mount in self.all}
        return {
            (
                mount.parent_id
                if mount.parent_id in ids and mount.parent_id != mount.mount_id
                else 0,
                mount.mount_point,
            ): mount
            for mount in self.all
        }

    @cached_property
    def _by_device(self) -> dict[str, list[Mount]]:
        found: dict[str, list[Mount]] = {}
        for mount in self.all:
            found.setdefault(mount.device, []).append(mount)
        return found

    def holding(self, path: str) -> Mount | None:
        """Return the mount that a lookup of ``path`` ends in, or None if none is visible.

        Walks the tree of mounts as the kernel does, so neither the order of the lines nor mounts
        hidden below later ones mislead it.
        """
        children = self._children
        current = 0
        found: Mount | None = None
        for prefix in _prefixes(path):
            # Several mounts on one directory form a chain, each on the root of the one before.
            while (deeper := children.get((current, prefix))) is not None:
                found = deeper
                current = deeper.mount_id
        return found

    def at(self, mount_point: str) -> Mount | None:
        """Return the visible (topmost) mount at exactly this path; None if it is no mount point."""
        # Cached: callers ask one table for the same paths again and again.
        if mount_point not in self._at:
            mount = self.holding(mount_point)
            there = mount is not None and mount.mount_point == mount_point
            self._at[mount_point] = mount if there else None
        return self._at[mount_point]

    def hears_of(self, path: str) -> bool:
        """Whether this process sees what the host mounts and unmounts below ``path``.

        It does not if a container has a private copy of the host's directory. A path in the root
        mount itself is no such copy, or is not the host's.
        """
        mount = self.holding(path)
        if mount is None or mount.mount_point == "/":
            return True
        return any(one.startswith(("shared:", "master:")) for one in mount.propagation.split())

    def below(self, path: str) -> list[Mount]:
        """Return the visible mounts strictly below ``path``: where a walk of it would cross."""
        inside = path.rstrip("/") + "/"
        return [
            mount
            for mount in self.all
            if mount.mount_point.startswith(inside)
            and mount.mount_point != path
            and self.holding(mount.mount_point) is mount
        ]

    def of_device(self, device: str) -> list[Mount]:
        """Return every mount of ``major:minor``, hidden ones too: those also keep it in use."""
        return list(self._by_device.get(device, ()))


def _prefixes(path: str) -> Iterator[str]:
    """Yield ``/``, ``/a``, ``/a/b`` for ``/a/b``; raises ValueError unless it is normalised."""
    if not path.startswith("/") or "//" in path or (path.endswith("/") and path != "/"):
        raise ValueError(f"not an absolute, normalised path: {path!r}")
    yield "/"
    if path == "/":
        return
    end = path.find("/", 1)
    while end != -1:
        yield path[:end]
        end = path.find("/", end + 1)
    yield path


def _decode(field: str) -> str:
    """Undo the kernel's octal escapes; every backslash of a name is itself escaped (134)."""
    if "\\" not in field:
        return field
    return os.fsdecode(_OCTAL.sub(lambda hit: bytes((int(hit[1], 8),)), os.fsencode(field)))


def parse_mount_table(text: bytes) -> list[Mount]:
    """Parse the whole of a mountinfo file, in the order of its lines.

    Raises ValueError on a line that is not of the documented form: a table read wrongly is
    worse than none.
    """
    mounts: list[Mount] = []
    append = mounts.append
    # Only the newline separates: names may hold carriage returns, form feeds, U+2028 and the like,
    # at which splitlines() would cut them.
    for line in os.fsdecode(text).split("\n"):
        if not line:
            continue
        ours, dash, theirs = line.partition(" - ")
        # By single spaces: an empty source leaves two in a row.
        left = ours.split(" ", 6)
        right = theirs.split(" ", 2)
        if not dash or len(left) < 6 or len(right) < 3:
            raise ValueError(f"mount table: cannot read the line {line!r}")
        append(
            Mount(
                int(left[0]),
                int(left[1]),
                left[2],
                _decode(left[3]),
                _decode(left[4]),
                left[5],
                _decode(right[0]),
                _decode(right[1]),
                right[2],
                left[6] if len(left) > 6 else "",
            )
        )
    return mounts


class MountSnapshot:
    """A mount table as it was read, and whether it is still current.

    Asking the kernel costs one system call that never blocks; reading the table again costs
    milliseconds. The kernel does not report two changes: a bound directory is removed
    (``//deleted``), and the path of a mount changes because its directory, or one that leads to
    it, is renamed.
    """

    def __init__(self, path: str = MOUNTINFO) -> None:
        """Read the table, at most 8 times if it keeps changing meanwhile.

        Raises OSError, and ValueError on a line that is not mountinfo.
        """
        # Opening notes the table's version; polling for PRI compares it with the current one.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._changed = select.poll()
            self._changed.register(self._descriptor, select.POLLPRI)
            self._is_current = False
            text = b""
            for _ in range(_READ_ATTEMPTS):
                text = _read_all(self._descriptor)
                self._is_current = not self._changed.poll(0)
                if self._is_current:
                    break
            self.table = MountTable(parse_mount_table(text), settled=self._is_current)
        except BaseException:
            self.close()
            raise

    def is_current(self) -> bool:
        """Whether nothing was mounted, unmounted or remounted since the table was read."""
        # The kernel reports a change only once; an outdated table stays outdated.
        self._is_current = self._is_current and not self._changed.poll(0)
        return self._is_current

    def close(self) -> None:
        """Stop asking: the table is not current from now on. Harmless when closed already."""
        self._is_current = False
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        # If it was made in a worker thread whose caller has given up, nobody else closes it.
        if hasattr(self, "_descriptor"):
            self.close()


def read_mount_table(path: str = MOUNTINFO) -> MountTable:
    """Read the mount table of this process, or of another (``/proc/<pid>/mountinfo``).

    Raises as ``MountSnapshot`` does.
    """
    snapshot = MountSnapshot(path)
    snapshot.close()
    return snapshot.table


def _read_all(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    pieces: list[bytes] = []
    while piece := os.read(descriptor, 1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


class MountWatcher:
    """Calls back, on the running loop, after every change of the mount table.

    The callback gets no arguments and must not block: it only means "look again". It comes once or
    more after a burst of changes, never before the first of them can be read.
    In a mount namespace with private propagation, the host's later mounts never arrive.
    """

    def __init__(self, callback: Callable[[], None], *, path: str = MOUNTINFO) -> None:
        self._callback = callback
        self._path = path
        self._loop: asyncio.AbstractEventLoop | None = None
        self._descriptor = -1
        self._inner: select.epoll | None = None

    def start(self) -> None:
        """Begin watching; changes from this moment on are reported. Raises OSError."""
        if self._inner is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        # The loop would wait for "readable", which mountinfo always is. An epoll of our own waits
        # for PRI, and is itself readable only when that came.
        self._inner = select.epoll()
        self._inner.register(self._descriptor, select.EPOLLPRI)
        self._loop.add_reader(self._inner.fileno(), self._woken)

    def _woken(self) -> None:
        if self._inner is not None:
            # Resets the inner epoll. Its result says nothing: looking already took the event.
            self._inner.poll(0)
            self._callback()

    def close(self) -> None:
        """Stop watching; harmless when not started or already closed."""
        if self._inner is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._inner.fileno())
        self._inner.close()
        self._inner = None
        os.close(self._descriptor)
        self._descriptor = -1
