"""Where the demo plays: a mount namespace of its own, and as root or in a user namespace.

What is mounted in it is seen by nobody else and ends with its last process, so that even kill -9
leaves no mount behind. Mounts of the machine still arrive and go (slave propagation): nobody's
`umount` fails because a demo runs.
"""

import os
import threading
from dataclasses import dataclass

from localvolume_lab.demo import kernel


class NoStage(Exception):
    """This machine lets us mount nothing; the message says what would help."""


@dataclass(frozen=True)
class Stage:
    """`root`: whether block devices and disk filesystems can be used, else only tmpfs."""

    root: bool
    description: str


def enter() -> Stage:
    """Move this process, which must have one thread only, onto the stage. Raises NoStage."""
    if threading.active_count() != 1:
        raise RuntimeError("the stage must be entered before any thread is started")
    if os.geteuid() == 0:
        try:
            kernel.unshare(kernel.CLONE_NEWNS)
            _stop_propagation()
            return Stage(True, "root, in a mount namespace of its own")
        except PermissionError:
            # Root in a container without CAP_SYS_ADMIN is no more than anybody else.
            pass
    user, group = os.geteuid(), os.getegid()
    try:
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
        # In this order: without "deny" an ordinary user may not map groups (user_namespaces(7)).
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"0 {user} 1"),
            ("gid_map", f"0 {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        _stop_propagation()
    except OSError as error:
        raise NoStage(
            "mounting needs root or user namespaces, and this machine allows neither "
            f"({error.strerror}). Run it as root (sudo), or allow user namespaces: "
            "sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
            "kernel.apparmor_restrict_unprivileged_userns; in a container, add CAP_SYS_ADMIN."
        ) from error
    return Stage(False, "no root: a user namespace of its own, where tmpfs can be mounted")


def _stop_propagation() -> None:
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_SLAVE)
