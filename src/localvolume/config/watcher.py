"""Noticing that the configuration changed, without polling it.

inotify tells of changes in one directory. Watched are therefore the configuration's directory, the
directories its links lead to, and its parents up to the first that exists: so an edit in place, an
editor's rename, the kubelet's exchange of `..data`, and a directory that comes, goes or is replaced
are all noticed. inotify is blind to mounts: call `refresh` when the mount table changes.
"""

import asyncio
import logging
import os
from collections.abc import Callable

from asyncinotify import Inotify, Mask, Watch

_log = logging.getLogger(__name__)

_EVENTS = (
    Mask.CREATE
    | Mask.DELETE
    | Mask.MOVE
    | Mask.MODIFY
    | Mask.CLOSE_WRITE
    | Mask.ATTRIB
    | Mask.DELETE_SELF
    | Mask.MOVE_SELF
    | Mask.ONLYDIR
)
_SETTLE_SECONDS = 0.1
# Where the kernel grants no inotify instance (fs.inotify.max_user_instances is small on many
# nodes and shared with the kubelet), upstream's own period is the fallback.
_FALLBACK_SECONDS = 5.0


class ConfigWatcher:
    """Calls back after changes in or around a directory, 100 ms after the first of a burst.

    `callback` is called in the event loop, without arguments and never concurrently; it may be
    called without a change, so it looks for itself. `period`, in seconds, calls it at least that
    often, whether or not anything was noticed.
    """

    def __init__(
        self, directory: str, callback: Callable[[], None], *, period: float | None = None
    ) -> None:
        self._directory = os.path.abspath(directory)
        self._callback = callback
        self._period = period
        self._wake = asyncio.Event()
        self._inotify: Inotify | None = None
        self._watches: dict[str, tuple[Watch, tuple[int, int]]] = {}

    def start(self) -> None:
        """Begin to notice. Changes from now on lead to a callback once `run` is running.

        So: start, read the configuration, run. Nothing falls between.
        """
        try:
            self._inotify = Inotify()
            self._arm()
        except OSError as error:
            self._give_up(error)

    def refresh(self) -> None:
        """Look again which directories there are to watch, as after a mount, and call back."""
        self._wake.set()

    async def run(self) -> None:
        """Call back after every change until cancelled; `start` is called if nobody did."""
        if self._inotify is None:
            self.start()
        reading = asyncio.create_task(self._read())
        try:
            while True:
                period = self._period
                if self._inotify is None:
                    period = min(period or _FALLBACK_SECONDS, _FALLBACK_SECONDS)
                try:
                    async with asyncio.timeout(period):
                        await self._wake.wait()
                    await asyncio.sleep(_SETTLE_SECONDS)
                except TimeoutError:
                    pass
                self._wake.clear()
                if self._inotify is not None:
                    try:
                        self._arm()
                    except OSError as error:
                        self._give_up(error)
                self._callback()
        finally:
            reading.cancel()
            self.close()

    def close(self) -> None:
        """Stop noticing; safe to call twice."""
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None
        self._watches.clear()

    async def _read(self) -> None:
        inotify = self._inotify
        if inotify is not None:
            async for _ in inotify:
                self._wake.set()

    def _give_up(self, error: OSError) -> None:
        _log.warning(
            "the kernel grants no inotify watch (%s): the configuration is read every %g s instead",
            error.strerror,
            _FALLBACK_SECONDS,
        )
        self.close()

    def _arm(self) -> None:
        """Watch exactly the directories that matter now; raises OSError if the kernel refuses."""
        assert self._inotify is not None
        # A directory that comes while its parent is being watched is seen in the next round.
        while True:
            wanted = self._wanted()
            for path in self._watches.keys() - wanted.keys():
                self._drop(path)
            news = False
            for path, identity in wanted.items():
                held = self._watches.get(path)
                if held is not None and held[1] == identity:
                    continue
                self._drop(path)
                try:
                    watch = self._inotify.add_watch(path, _EVENTS)
                except (FileNotFoundError, NotADirectoryError, PermissionError):
                    continue
                self._watches[path] = (watch, identity)
                news = True
            if not news:
                return

    def _drop(self, path: str) -> None:
        held = self._watches.pop(path, None)
        if held is None or self._inotify is None:
            return
        if any(other.wd == held[0].wd for other, _ in self._watches.values()):
            return
        try:
            self._inotify.rm_watch(held[0])
        except OSError:
            # The kernel dropped it already, with the directory itself.
            return

    def _wanted(self) -> dict[str, tuple[int, int]]:
        """The directories to watch, with their device and inode numbers."""
        paths = {self._directory}
        parent = self._directory
        while parent != "/":
            parent = os.path.dirname(parent)
            paths.add(parent)
            if os.path.isdir(parent):
                break
        try:
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        paths.add(os.path.dirname(os.path.realpath(entry.path)))
        except OSError:
            paths.discard(self._directory)
        wanted = {}
        for path in paths:
            try:
                status = os.stat(path)
            except OSError:
                continue
            wanted[path] = (status.st_dev, status.st_ino)
        return wanted
