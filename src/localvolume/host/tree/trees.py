"""Steps on a directory tree by descriptor: make, move without replacing, write whole files."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from localvolume.host.syscalls import closed_after, failed
from localvolume.host.tree.beneath import open_beneath

_libc = ctypes.CDLL(None, use_errno=True)
_RENAME_NOREPLACE: Final = 1  # linux/fs.h
# renameat2(2), where the C library has no wrapper (musl before 1.2.6).
_NR_RENAMEAT2: Final = {
    "x86_64": 316,
    "aarch64": 276,
    "riscv64": 276,
    "loongarch64": 276,
    "ppc64le": 357,
    "s390x": 347,
}
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLACE: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

TEMPORARY: Final = ".new-"
"""How the names of incomplete files begin."""


@contextmanager
def opened(parent: int, relative: str) -> Iterator[int]:
    """A directory below `parent`, open for reading, without links or other mounts on the way.

    Raises LeadsOutside, OSError; ValueError for what is not a path of names.
    """
    with closed_after(open_beneath(parent, relative, _DIRECTORY)) as fd:
        yield fd


@contextmanager
def pinned(parent: int, relative: str) -> Iterator[int]:
    """Like `opened`, but with O_PATH: good for fstat and as the root of further steps."""
    with closed_after(open_beneath(parent, relative, _PLACE)) as fd:
        yield fd


def make_directory(parent: int, name: str, mode: int) -> bool:
    """Make a directory with exactly that mode, whatever the umask; False if there is one already.

    An existing directory is left as it is. Raises OSError: ENOTDIR if something else is there.
    """
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        with pinned(parent, name):
            return False
    with opened(parent, name) as fd:
        os.fchmod(fd, mode)
    return True


def rename_new(from_fd: int, name: str, to_fd: int, new_name: str) -> None:
    """Rename without ever replacing anything; raises FileExistsError, OSError.

    On the few filesystems whose rename cannot promise that, it looks for the new name first, which
    is enough where only root writes.
    """
    try:
        _renameat2(from_fd, name, to_fd, new_name)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
    else:
        return
    if has_name(to_fd, new_name):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_name)
    os.rename(name, new_name, src_dir_fd=from_fd, dst_dir_fd=to_fd)


def _renameat2(from_fd: int, name: str, to_fd: int, new_name: str) -> None:
    arguments = (
        ctypes.c_int(from_fd),
        ctypes.c_char_p(os.fsencode(name)),
        ctypes.c_int(to_fd),
        ctypes.c_char_p(os.fsencode(new_name)),
        ctypes.c_uint(_RENAME_NOREPLACE),
    )
    wrapper: Any = getattr(_libc, "renameat2", None)
    if wrapper is not None:
        answer = wrapper(*arguments)
    elif (number := _NR_RENAMEAT2.get(os.uname().machine)) is not None:
        answer = _libc.syscall(ctypes.c_long(number), *arguments)
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if answer:
        raise failed(name)


def stage_file(parent: int, content: bytes, *, mode: int = 0o600) -> str:
    """Write a file under a temporary name, and its content to disk; returns that name.

    Raises OSError; then nothing is left behind.
    """
    temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with _alike(temporary):
        fd = os.open(temporary, flags, mode, dir_fd=parent)
    try:
        with closed_after(fd):
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise
    return temporary


@contextmanager
def _alike(temporary: str) -> Iterator[None]:
    """Make errors of all attempts alike: with the random name, each would be a new Event."""
    try:
        yield
    except OSError as error:
        if error.filename == temporary:
            error.filename = f"{TEMPORARY}*"
        raise


def put_staged(parent: int, temporary: str, name: str, *, replace: bool = True) -> None:
    """Give a staged file its name: it is there whole or not at all, now and after a power cut.

    The name is on disk once `parent` is synced. Without `replace`, raises FileExistsError if the
    name is taken. Raises OSError; then the staged file is gone.
    """
    try:
        with _alike(temporary):
            if replace:
                os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            else:
                rename_new(parent, temporary, parent, name)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise


def read_file(parent: int, name: str, most: int) -> bytes:
    """Read a regular file of at most that many bytes; raises OSError (EFBIG), ValueError."""
    fd = open_beneath(parent, name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), name)
    return content


def has_name(parent: int, name: str) -> bool:
    """Whether an open directory has anything of that name; raises OSError."""
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def list_names(parent: int) -> list[str]:
    """All names in an open directory, whatever its read position; raises OSError."""
    # An open file description of our own: reading moves the position, which duplicates share.
    with closed_after(os.open(".", _DIRECTORY, dir_fd=parent)) as fd:
        return os.listdir(fd)


def holds_anything(parent: int) -> bool:
    """Whether there is any name in an open directory, of however many; raises OSError."""
    with closed_after(os.open(".", _DIRECTORY, dir_fd=parent)) as fd, os.scandir(fd) as entries:
        return next(entries, None) is not None


def sync_directory(parent: int) -> None:
    """Write a directory's names to disk; `parent` may be open with O_PATH. Raises OSError."""
    with closed_after(os.open(".", _DIRECTORY, dir_fd=parent)) as fd:
        os.fsync(fd)
