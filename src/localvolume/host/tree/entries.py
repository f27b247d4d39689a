"""What lies in a discovery directory: names one level deep, and what each is, by stat only.

Nothing is ever opened here: opening a FIFO blocks, opening a device may start it, and a symbolic
link may lead anywhere.
"""

import enum
import errno
import os
import stat
from typing import NamedTuple


class EntryKind(enum.Enum):
    """What an entry is, after following symbolic links."""

    DIRECTORY = "directory"
    BLOCK = "block device"
    CHAR = "character device"
    FIFO = "fifo"
    SOCKET = "socket"
    REGULAR = "regular file"
    #: A symbolic link that leads nowhere: its target is missing, or the links go round in a circle.
    DANGLING = "dangling symbolic link"


class Entry(NamedTuple):
    """One name of a directory; bytes that are not text are surrogate escapes."""

    name: str
    path: str


class Classified(NamedTuple):
    """What an entry is and the numbers that tell it from others, after following links."""

    kind: EntryKind
    #: ``major:minor`` of the filesystem the thing lies in (as the mount table has it).
    device: str
    inode: int
    #: Whether the entry itself is a symbolic link.
    is_symlink: bool


_KINDS = {
    stat.S_IFDIR: EntryKind.DIRECTORY,
    stat.S_IFBLK: EntryKind.BLOCK,
    stat.S_IFCHR: EntryKind.CHAR,
    stat.S_IFIFO: EntryKind.FIFO,
    stat.S_IFSOCK: EntryKind.SOCKET,
    stat.S_IFREG: EntryKind.REGULAR,
}

# Errors from following a symbolic link that leads nowhere.
_NOWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


def scan(directory: str) -> list[Entry]:
    """List a directory, one level, in the order of the names' bytes.

    Raises OSError: FileNotFoundError, NotADirectoryError, PermissionError and what the disk says.
    """
    names = sorted(os.listdir(directory), key=os.fsencode)
    return [Entry(name, os.path.join(directory, name)) for name in names]


def classify(path: str) -> Classified:
    """Tell what ``path`` is without opening it.

    Raises FileNotFoundError when there is nothing by that name, and any other OSError as it comes
    (a link whose target may not be looked at, a dead network mount): unknown is not DANGLING.
    """
    found = os.lstat(path)
    is_symlink = stat.S_ISLNK(found.st_mode)
    if is_symlink:
        try:
            found = os.stat(path)
        except OSError as error:
            if error.errno not in _NOWHERE:
                raise
            return Classified(EntryKind.DANGLING, device_number(found.st_dev), found.st_ino, True)
    kind = _KINDS[stat.S_IFMT(found.st_mode)]
    return Classified(kind, device_number(found.st_dev), found.st_ino, is_symlink)


def device_number(number: int) -> str:
    """Write a ``dev_t`` as the kernel does in sysfs and the mount table: ``major:minor``."""
    return f"{os.major(number)}:{os.minor(number)}"
