"""Notices that the configuration changed, without polling it.

inotify reports changes in one directory. So the configuration's directory is watched, with the
directories its links lead to, and its parents up to the first that exists. This notices an edit in
place, an editor's rename, the kubelet's exchange of `..data`, and a directory that appears, goes or
is replaced. inotify does not report mounts: call `refresh` when the mount table changes.
"""

import asyncio
import logging
import os
from collections.abc import Callable

from asyncinotify import Event, Inotify, Mask, Watch

_log = logging.getLogger(__name__)

# Not MODIFY: a file that is being written is of no use until it is closed.
_EVENTS = (
    Mask.CREATE
    | Mask.DELETE
    | Mask.MOVE
    | Mask.CLOSE_WRITE
    | Mask.ATTRIB
    | Mask.DELETE_SELF
    | Mask.MOVE_SELF
    | Mask.ONLYDIR
)
_SETTLE_SECONDS = 0.1
# If the kernel grants no inotify instance (fs.inotify.max_user_instances is small on many nodes
# and shared with the kubelet), upstream's own period is the fallback.
FALLBACK_SECONDS = 5.0


class ConfigWatcher:
    """Calls back after changes in or around a directory, 100 ms after the first of a burst.

    `callback` is called in the event loop, without arguments and never concurrently; it may be
    called without a change, so it must look for itself. It is called at least once in `period`
    seconds even if nothing was noticed, and in `fallback_seconds` if inotify does not work.
    """

    def __init__(
        self,
        directory: str,
        callback: Callable[[], None],
        *,
        period: float | None = None,
        fallback_seconds: float = FALLBACK_SECONDS,
    ) -> None:
        self._directory = os.path.abspath(directory)
        self._callback = callback
        self._period = period
        self._fallback_seconds = fallback_seconds
        self._wake = asyncio.Event()
        self._inotify: Inotify | None = None
        self._blind = False
        self._watches: dict[str, tuple[Watch, tuple[int, int]]] = {}
        self._parents: dict[str, str] = {}

    def start(self) -> None:
        """Begin to watch. Changes from now on lead to a callback once `run` is running.

        So start, read the configuration, then run: no change is missed.
        """
        try:
            self._inotify = Inotify()
        except OSError as error:
            self._turn_blind(error)
        else:
            self._rearm()

    def refresh(self) -> None:
        """Find the directories to watch again, as after a mount, and call back."""
        self._wake.set()

    async def run(self) -> None:
        """Call back after every change until cancelled; calls `start` if nobody did."""
        if self._inotify is None and not self._blind:
            self.start()
        reading = asyncio.create_task(self._read())
        # If reading fails, so do we: a watcher that watches nothing is worse than none.
        reading.add_done_callback(lambda _: self._wake.set())
        try:
            while True:
                await self._change()
                if reading.done():
                    reading.result()
                self._rearm()
                self._callback()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            self.close()

    def close(self) -> None:
        """Stop watching; safe to call twice."""
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None
        self._watches.clear()

    async def _change(self) -> None:
        """Wait for a change and let it settle, or for the period to pass."""
        period = self._period
        if self._blind:
            period = min(period or self._fallback_seconds, self._fallback_seconds)
        try:
            async with asyncio.timeout(period):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_SETTLE_SECONDS)
        self._wake.clear()

    async def _read(self) -> None:
        if self._inotify is None:
            await asyncio.Event().wait()
            return
        async for event in self._inotify:
            if self._matters(event):
                self._wake.set()

    def _matters(self, event: Event) -> bool:
        """Whether an event counts: in a parent, only the next directory down is of interest."""
        watch = event.watch
        if watch is None or event.name is None:
            return True
        names = {
            self._parents.get(path) for path, (held, _) in self._watches.items() if held is watch
        }
        return None in names or str(event.name) in names or not names

    def _turn_blind(self, error: OSError) -> None:
        if not self._blind:
            _log.warning(
                "the kernel grants no inotify watch (%s): "
                "the configuration is read every %g s instead",
                error.strerror,
                self._fallback_seconds,
            )
        self._blind = True

    def _rearm(self) -> None:
        """Watch exactly the directories that matter now."""
        if self._inotify is None:
            return
        try:
            self._arm(self._inotify)
        except OSError as error:
            self._turn_blind(error)
        else:
            self._blind = False

    def _arm(self, inotify: Inotify) -> None:
        # The next round finds a directory that appeared while its parent's watch was being added.
        while True:
            wanted = self._wanted()
            for path in self._watches.keys() - wanted.keys():
                self._drop(path, inotify)
            news = False
            for path, identity in wanted.items():
                held = self._watches.get(path)
                if held is not None and held[1] == identity:
                    continue
                self._drop(path, inotify)
                try:
                    watch = inotify.add_watch(path, _EVENTS)
                except (FileNotFoundError, NotADirectoryError, PermissionError):
                    continue
                self._watches[path] = (watch, identity)
                news = True
            if not news:
                return

    def _drop(self, path: str, inotify: Inotify) -> None:
        held = self._watches.pop(path, None)
        if held is None:
            return
        if any(other.wd == held[0].wd for other, _ in self._watches.values()):
            return
        try:
            inotify.rm_watch(held[0])
        except OSError:
            # The kernel dropped it already, with the directory itself.
            return

    def _wanted(self) -> dict[str, tuple[int, int]]:
        """The directories to watch, with their device and inode numbers."""
        own = {self._directory}
        try:
            with os.scandir(self._directory) as entries:
                own.update(
                    os.path.dirname(os.path.realpath(entry.path))
                    for entry in entries
                    if entry.is_symlink()
                )
        except OSError:
            own.clear()
        self._parents = {}
        child = self._directory
        while child != "/":
            parent = os.path.dirname(child)
            if parent not in own:
                self._parents[parent] = os.path.basename(child)
            if os.path.isdir(parent):
                break
            child = parent
        wanted = {}
        for path in own | self._parents.keys():
            try:
                status = os.stat(path)
            except OSError:
                continue
            wanted[path] = (status.st_dev, status.st_ino)
        return wanted
