"""Unix sockets at a path: what lies there already, and how one is put there complete."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from typing import Final

BACKLOG: Final = 128

MOST_BYTES: Final = 107
"""The longest path that anybody can connect to (unix(7): sun_path)."""

ANSWERED: Final = "is served by another process"


def in_the_way(path: str) -> str:
    """Why no socket can be put there now, "" if one can. Raises OSError."""
    if len(os.fsencode(path)) > MOST_BYTES:
        return f"is too long for a socket, which may have {MOST_BYTES} bytes"
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return ""
    if not stat.S_ISSOCK(mode):
        return "is no socket: remove it, or name another place"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return ""
        except BlockingIOError:
            return ANSWERED
    return ANSWERED


def bound(path: str) -> socket.socket:
    """A socket that listens at that path, replacing what lay there; never with another mode."""
    directory, _, name = path.rpartition("/")
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    # The path of a socket may have 107 characters: whoever connects needs them all.
    temporary = f"/proc/self/fd/{fd}/.{name[:40]}.{os.getpid()}"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        listening.bind(temporary)
        os.chmod(temporary, 0o600)
        listening.listen(BACKLOG)
        os.rename(temporary, path)
    except BaseException:
        listening.close()
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    listening.setblocking(False)
    return listening


def inode_at(path: str) -> int:
    """The number of what lies there; 0 if nothing does. Raises OSError."""
    try:
        return os.stat(path, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return 0
