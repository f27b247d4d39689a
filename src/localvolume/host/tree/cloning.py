"""Clone a directory tree: all that it holds and how that is set up, sharing the files' blocks.

Names, content with its holes, hard links, symbolic links, pipes, sockets and device nodes; modes,
owners, times, extended attributes with access lists, and chattr's flags. Nobody may change the tree
meanwhile. No link is followed, and no other mount is entered.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from localvolume.host.filesystem import reflink
from localvolume.host.filesystem.inodeflags import read_flags, unlock_beneath, write_flags
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.beneath import open_beneath

MOST_ENTRIES: Final = 200_000
"""So many names fit into memory, and are cloned in a minute or two."""
MOST_LEVELS: Final = 1000

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLACE: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# chattr's S, i, a, d and A (linux/fs.h): what an administrator or a tenant may have set.
_FLAGS: Final = 0x8 | 0x10 | 0x20 | 0x40 | 0x80


class TooLarge(Exception):
    """The tree has more names, or more levels, than are cloned: copy it otherwise."""


def clone_tree(source: int, target: int, *, most: int = MOST_ENTRIES) -> None:
    """Clone all that is in an open directory into another, empty one on the same filesystem.

    At most so many files and directories. The target is set up as the source, but for its flags.
    Nothing is synced. Raises TooLarge, OSError (EOPNOTSUPP, EINVAL: a file cannot share its
    blocks).
    """
    _Cloning(source, target, most).run()


class _Cloning:
    def __init__(self, source: int, target: int, most: int) -> None:
        self._source, self._target, self._most = source, target, most
        self._entries = 0
        # Where the first name of a file with several is, by its inode.
        self._first: dict[int, str] = {}

    def run(self) -> None:
        # Directories to clone, or, once what is in them is cloned, to set up.
        pending = [("", False)]
        while pending:
            path, is_filled = pending.pop()
            with _opened(self._source, path) as source, _opened(self._target, path) as target:
                if is_filled:
                    # Not before: its access list would become that of what is made in it, and its
                    # time change.
                    _set_up(source, target, os.fstat(source), flags=bool(path))
                    continue
                pending.append((path, True))
                if path.count("/") > MOST_LEVELS:
                    raise TooLarge(f"it has more than {MOST_LEVELS} levels of directories")
                with os.scandir(source) as entries:
                    for entry in entries:
                        inside = f"{path}/{entry.name}" if path else entry.name
                        if self._clone(source, target, entry.name, inside):
                            pending.append((inside, False))

    def _clone(self, source: int, target: int, name: str, path: str) -> bool:
        """Clone one name; returns whether it is a directory, of which the content is to follow."""
        self._entries += 1
        if self._entries > self._most:
            raise TooLarge(f"it has more than {self._most} files and directories")
        with closed_after(open_beneath(source, name, _PLACE)) as place:
            found = os.fstat(place)
            if stat.S_ISDIR(found.st_mode):
                os.mkdir(name, 0o700, dir_fd=target)
                return True
            if found.st_nlink > 1:
                if (first := self._first.get(found.st_ino)) is not None:
                    self._link(first, source, target, name)
                    return False
                self._first[found.st_ino] = path
            if stat.S_ISREG(found.st_mode):
                _clone_file(source, target, name)
            else:
                _clone_special(place, target, name, found)
        return False

    def _link(self, first: str, source: int, target: int, name: str) -> None:
        above, _, its_name = first.rpartition("/")
        with _opened(self._target, above) as directory:
            # Until it has all its names: what is immutable or append-only gets no more.
            locked = unlock_beneath(directory, its_name)
            os.link(its_name, name, src_dir_fd=directory, dst_dir_fd=target, follow_symlinks=False)
        if locked:
            with (
                closed_after(open_beneath(source, name, _READ)) as file,
                closed_after(open_beneath(target, name, _READ)) as made,
            ):
                _clone_flags(file, made)


@contextmanager
def _opened(root: int, path: str) -> Iterator[int]:
    # A descriptor of our own, as reading moves the position.
    fd = open_beneath(root, path, _DIRECTORY) if path else os.open(".", _DIRECTORY, dir_fd=root)
    with closed_after(fd):
        yield fd


def _clone_file(source: int, target: int, name: str) -> None:
    with (
        closed_after(open_beneath(source, name, _READ)) as file,
        closed_after(os.open(name, _NEW, 0o600, dir_fd=target)) as made,
    ):
        try:
            reflink.clone(made, file)
        except OSError as error:
            raise OSError(
                error.errno, f"{error.strerror} (its blocks are to be shared)", name
            ) from error
        _set_up(file, made, os.fstat(file), flags=True)


def _clone_special(place: int, target: int, name: str, found: os.stat_result) -> None:
    """Clone a symbolic link, pipe, socket or device node, none of which can be opened."""
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink("", dir_fd=place), name, dir_fd=target)
    else:
        os.mknod(name, found.st_mode, found.st_rdev, dir_fd=target)
    os.chown(name, found.st_uid, found.st_gid, dir_fd=target, follow_symlinks=False)
    with closed_after(open_beneath(target, name, _PLACE)) as made:
        itself = f"/proc/self/fd/{made}"
        if not stat.S_ISLNK(found.st_mode):
            os.chmod(itself, stat.S_IMODE(found.st_mode))
        _clone_attributes(f"/proc/self/fd/{place}", itself)
    times = found.st_atime_ns, found.st_mtime_ns
    os.utime(name, ns=times, dir_fd=target, follow_symlinks=False)


def _set_up(source: int, made: int, found: os.stat_result, *, flags: bool) -> None:
    """Set up an open file or directory as another is."""
    # In this order: a new owner clears setuid, setgid and capabilities, and flags forbid the rest.
    os.fchown(made, found.st_uid, found.st_gid)
    os.fchmod(made, stat.S_IMODE(found.st_mode))
    _clone_attributes(source, made)
    os.utime(made, ns=(found.st_atime_ns, found.st_mtime_ns))
    if flags:
        _clone_flags(source, made)


def _clone_flags(source: int, made: int) -> None:
    if wanted := (read_flags(source) or 0) & _FLAGS:
        write_flags(made, (read_flags(made) or 0) | wanted)


def _clone_attributes(source: int | str, made: int | str) -> None:
    try:
        names = os.listxattr(source)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return
        raise
    for name in names:
        os.setxattr(made, name, os.getxattr(source, name))
