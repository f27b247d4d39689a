"""The stable paths of images: links in /run, each to the loop device its volume has now.

Loop devices have no names of their own: a volume's number differs from boot to boot. The links are
safe because they lie in /run, which is empty after a reboot: an old link can never lead to a loop
device that another tenant's volume has by now. And before a volume gets a loop device, every link
that still leads there (somebody ran `losetup -d`) is removed.
"""

import contextlib
import os
from typing import Final

LINKS: Final = "/run/localvolume"


def one_name(text: str) -> bool:
    """Whether it is a name within one directory, and none of our temporary ones."""
    return bool(text) and "/" not in text and "\0" not in text and not text.startswith(".")


class Links:
    """The links below one directory: ``<directory>/<pool id>/<name>``."""

    def __init__(self, directory: str = LINKS) -> None:
        self.directory = directory

    def path(self, pool_id: str, name: str) -> str:
        """Where the link of a volume is. Raises ValueError if either is no name."""
        if not one_name(pool_id) or not one_name(name):
            raise ValueError(f"not a name: {pool_id!r}, {name!r}")
        return f"{self.directory}/{pool_id}/{name}"

    def target(self, pool_id: str, name: str) -> str:
        """What the link leads to; "" if there is none. Raises OSError."""
        return _target(self.path(pool_id, name))

    def lead(self, pool_id: str, name: str, node: str) -> None:
        """Make the link lead to the node, in one step. Raises OSError."""
        path = self.path(pool_id, name)
        if _target(path) == node:
            return
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        beside = f"{os.path.dirname(path)}/.{name}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)  # left by a call that was killed here
        os.symlink(node, beside)
        os.rename(beside, path)

    def remove(self, pool_id: str, name: str) -> None:
        """Remove the link, if there is one. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(pool_id, name))

    def disown(self, node: str) -> None:
        """Remove every link that leads to the node. Raises OSError."""
        for pool_id in _names(self.directory):
            for name in _names(f"{self.directory}/{pool_id}"):
                path = f"{self.directory}/{pool_id}/{name}"
                if _target(path) == node:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""
    except OSError:
        if os.path.lexists(path) and not os.path.islink(path):
            return ""  # something else: rename replaces it if it is in the way
        raise
