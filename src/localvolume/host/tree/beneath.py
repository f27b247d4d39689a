"""Open something below a directory and nowhere else: no symbolic links, no other mounts, no "..".

openat2(2) does it in the kernel in one step (Linux 5.6). Without it, the path is walked one
component at a time, and every step must lie on the same mount as the one before.
"""

import errno
import os
import stat

from localvolume.host import syscalls
from localvolume.host.syscalls import (
    RESOLVE_BENEATH,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    RESOLVE_NO_XDEV,
    mount_id,
)

_RESOLVE = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The longest path that the kernel takes in one call has 4,095 bytes.
_LONGEST = 4000
# How often to ask the kernel again when it saw a rename during its walk (EAGAIN).
_ATTEMPTS = 64

_openat2_works: bool | None = None


class LeadsOutside(OSError):
    """The path meets a symbolic link (errno ELOOP) or another mount (EXDEV): not followed."""


def open_beneath(root_fd: int, relative: str, flags: int, mode: int = 0) -> int:
    """Open ``relative`` below ``root_fd`` and return the descriptor, close-on-exec.

    ``relative`` may be of any length and is made of names only: ValueError when it is empty or
    absolute or has empty, ``.`` or ``..`` components. A symbolic link as the last component is
    opened itself with ``O_PATH | O_NOFOLLOW``, and refused otherwise.
    Raises ``LeadsOutside`` (ENOTDIR for a link where ``flags`` ask for a directory), OSError.
    """
    names = relative.split("/")
    if any(name in ("", ".", "..") for name in names):
        raise ValueError(f"not a path of names below a directory: {relative!r}")
    current = root_fd
    try:
        *steps, last = _pieces(names)
        for piece in steps:
            deeper = _open(current, piece, _STEP, 0)
            if current != root_fd:
                os.close(current)
            current = deeper
        return _open(current, last, flags, mode)
    finally:
        if current != root_fd:
            os.close(current)


def _pieces(names: list[str]) -> list[list[str]]:
    """Cut a path into pieces that the kernel takes in one call."""
    pieces: list[list[str]] = [[]]
    length = 0
    for name in names:
        length += len(os.fsencode(name)) + 1
        if pieces[-1] and length > _LONGEST:
            pieces.append([])
            length = len(os.fsencode(name)) + 1
        pieces[-1].append(name)
    return pieces


def _open(root_fd: int, names: list[str], flags: int, mode: int) -> int:
    try:
        if _kernel_can(root_fd):
            return _by_openat2(root_fd, "/".join(names), flags, mode)
        return _by_steps(root_fd, names, flags, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EXDEV) and not isinstance(error, LeadsOutside):
            raise LeadsOutside(error.errno, error.strerror, "/".join(names)) from error
        raise


def _kernel_can(root_fd: int) -> bool:
    """Try once, here: an old seccomp profile answers EPERM, which could mean anything later."""
    global _openat2_works  # noqa: PLW0603 - a fact about the kernel, learned once
    if _openat2_works is None:
        try:
            os.close(syscalls.openat2(root_fd, ".", _STEP, 0, _RESOLVE))
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM):
                raise
            _openat2_works = False
        else:
            _openat2_works = True
    return _openat2_works


def _by_openat2(root_fd: int, path: str, flags: int, mode: int) -> int:
    for _ in range(_ATTEMPTS):
        try:
            return syscalls.openat2(root_fd, path, flags, mode, _RESOLVE)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
    raise OSError(errno.EAGAIN, "names keep changing along the path", path)


def _by_steps(root_fd: int, names: list[str], flags: int, mode: int) -> int:
    mount = mount_id(root_fd)
    current = root_fd
    try:
        for name in names[:-1]:
            deeper = _same_mount(_step(current, name), mount)
            if current != root_fd:
                os.close(current)
            current = deeper
        # Look before opening: opening a device or FIFO of another mount has effects.
        try:
            place = os.open(names[-1], os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
        else:
            os.close(_same_mount(place, mount))
        opened = os.open(names[-1], flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=current)
        if (
            flags & os.O_PATH
            and not flags & os.O_NOFOLLOW
            and stat.S_ISLNK(os.fstat(opened).st_mode)
        ):
            os.close(opened)
            raise LeadsOutside(errno.ELOOP, os.strerror(errno.ELOOP), names[-1])
        return _same_mount(opened, mount)
    finally:
        if current != root_fd:
            os.close(current)


def _step(parent: int, name: str) -> int:
    try:
        return os.open(name, _STEP, dir_fd=parent)
    except NotADirectoryError:
        # openat2 distinguishes a symbolic link on the way from a file on the way.
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise LeadsOutside(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise


def _same_mount(fd: int, mount: int) -> int:
    """Return ``fd``, or close it and raise when it lies on another mount."""
    if mount_id(fd) != mount:
        os.close(fd)
        raise LeadsOutside(errno.EXDEV, "another filesystem is mounted there")
    return fd
