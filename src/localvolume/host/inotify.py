"""Changes inside discovery directories, however often the directories themselves are replaced.

inotify(7) watches an inode, not a path, and knows nothing of mounts. So every directory on the way
to a watched one is watched too, for the one name that leads there; and ``refresh``, called when the
mount table changed, compares what the path leads to now with what is being watched.
"""

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from asyncinotify import Event, Inotify, Mask, Watch

from localvolume.host.process.workers import Hung, Workers

_log = logging.getLogger(__name__)

_SELF = Mask.DELETE_SELF | Mask.MOVE_SELF
# MASK_ADD: one directory may be on the way to a second one and be watched for itself.
_ON_THE_WAY = (
    Mask.CREATE | Mask.DELETE | Mask.MOVE | _SELF | Mask.ONLYDIR | Mask.MASK_ADD | Mask.EXCL_UNLINK
)
_WATCHED = _ON_THE_WAY | Mask.ATTRIB
#: The watch no longer stands for the path it was made for.
_GONE = _SELF | Mask.UNMOUNT | Mask.IGNORED

# Seconds that reaching a directory may take (it may lie on a dead network mount).
DEADLINE_SECONDS = 10.0
# Events handled per wake, so that a flood leaves the loop time for others.
_BATCH = 256

#: A watch and the name it is wanted for; None: every name (the watched directory itself).
_Role = tuple[Watch, str | None]


class _Early(NamedTuple):
    """An event that came while a path was being armed, when nobody knew yet what it means for it.

    ``number`` is the watch's, None if that was just being made; ``gone``: it stands for no path.
    """

    number: int | None
    name: str | None
    gone: bool

    def concerns(self, roles: Iterable[_Role]) -> bool:
        """Whether the path may lead elsewhere since its directories were watched for this."""
        return any(
            self.number in (None, watch.wd)
            and (self.gone or (name is not None and name == self.name))
            for watch, name in roles
        )


class DirectoryWatcher:
    """Calls back, on the running loop, with ``(path, name)`` of what changed in a directory.

    ``path`` is the watched directory as it was given. ``name`` is the entry that was created,
    deleted, moved or got other attributes; None means: look at the whole directory again. None also
    comes after every (re-)arming, so that nothing done before the watch existed is missed. A
    directory need not exist yet. Paths are absolute and normalised. The callback must not block.
    Reaching a directory may take ``deadline_seconds``.
    """

    def __init__(
        self,
        paths: Iterable[str],
        callback: Callable[[str, str | None], None],
        *,
        workers: Workers | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._deadline_seconds = deadline_seconds
        self._paths = tuple(dict.fromkeys(paths))
        for path in self._paths:
            if not os.path.isabs(path) or os.path.normpath(path) != path:
                raise ValueError(f"not an absolute, normalised path: {path!r}")
        self._callback = callback
        # Few paths, seldom armed: two threads of our own, one of which may hang.
        self._workers_are_ours = workers is None
        self._workers = workers if workers is not None else Workers(2)
        self._inotify: Inotify | None = None
        self._roles: dict[str, list[_Role]] = {}
        self._wanted: dict[int, list[tuple[str, str | None]]] = {}
        #: Paths to arm again, and whether to call back even when that changes no watch.
        self._stale: dict[str, bool] = {}
        self._arming: asyncio.Task[None] | None = None
        #: The names on the way to the path that is just being armed, and what came meanwhile.
        self._names: frozenset[str] = frozenset()
        self._early: set[_Early] = set()
        #: Paths that could not be armed when a change was to be told.
        self._owed: set[str] = set()
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> Mapping[str, str]:
        """Why directories are not being watched, by path; all others are."""
        return dict(self._problems)

    def start(self) -> None:
        """Begin to watch; arming goes on in the background. Raises OSError without inotify."""
        if self._inotify is not None:
            return
        self._inotify = Inotify(cache_size=64, sync_timeout=0)
        asyncio.get_running_loop().add_reader(self._inotify.fd, self._readable)
        self.refresh()

    def refresh(self) -> None:
        """Make sure that what is watched is what the paths lead to now; cheap when it is.

        Call it after a change of the mount table, and now and then to retry what failed before.
        """
        self._rearm(self._paths, tell=False)

    def close(self) -> None:
        """Stop watching; harmless when not started or already closed."""
        if self._inotify is None:
            return
        if self._arming is not None:
            self._arming.cancel()
            self._arming = None
        with contextlib.suppress(RuntimeError):  # no loop runs any more: nothing to remove
            asyncio.get_running_loop().remove_reader(self._inotify.fd)
        self._inotify.close()
        self._inotify = None
        if self._workers_are_ours:
            self._workers.close()
        self._roles.clear()
        self._wanted.clear()
        self._stale.clear()
        self._owed.clear()

    def _readable(self) -> None:
        changed: dict[tuple[str, str | None], None] = {}
        for _ in range(_BATCH):
            event = self._inotify.sync_get() if self._inotify is not None else None
            if event is None:
                break
            self._sort(event, changed)
        else:
            # More may wait in the library's own buffer, where the loop does not see it.
            asyncio.get_running_loop().call_soon(self._readable)
        for path, name in changed:
            if self._inotify is None:  # the callback closed us
                return
            self._callback(path, name)

    def _sort(self, event: Event, changed: dict[tuple[str, str | None], None]) -> None:
        """Decide what an event means for which path."""
        if Mask.Q_OVERFLOW in event.mask:
            self._rearm(self._paths, tell=True)
            return
        name = None if event.name is None else str(event.name)
        gone = bool(event.mask & _GONE)
        if self._names and (gone or name in self._names):
            number = None if event.watch is None else event.watch.wd
            self._early.add(_Early(number, name, gone))
        if event.watch is None:
            return
        for path, wanted in self._wanted.get(event.watch.wd, ()):
            if gone or (wanted is not None and wanted == name):
                self._rearm((path,), tell=True)
            elif wanted is None:
                changed[path, name] = None

    def _rearm(self, paths: Iterable[str], *, tell: bool) -> None:
        if self._inotify is None:
            return
        for path in paths:
            self._stale[path] = tell or self._stale.get(path, False)
        if self._stale and self._arming is None:
            self._arming = asyncio.get_running_loop().create_task(self._arm_stale(self._inotify))

    async def _arm_stale(self, inotify: Inotify) -> None:
        """Arm what is stale, one path at a time: two at once could undo each other's watches."""
        try:
            while self._stale:
                path = next(iter(self._stale))
                tell = self._stale.pop(path) or path in self._owed
                problem = ""
                self._names = frozenset(name for _, name in _steps(path) if name is not None)
                try:
                    roles, problem = await self._workers.call(
                        f"watch {path}", self._deadline_seconds, _arm, inotify, path
                    )
                except Hung as hung:
                    # The old watches stay: they may be right. The next refresh tries again.
                    self._note(path, str(hung))
                    if tell:
                        self._owed.add(path)
                    continue
                finally:
                    early, self._early, self._names = self._early, set(), frozenset()
                self._owed.discard(path)
                self._note(path, problem)
                before = self._roles.get(path, [])
                self._roles[path] = roles
                self._index(inotify, before)
                if any(one.concerns(roles) for one in early):
                    # Its roles were not known yet, so nobody else arms it again for this.
                    self._stale[path] = True
                if tell or roles != before:
                    # Not from within this task, which a failing callback must not end.
                    asyncio.get_running_loop().call_soon(self._tell, path)
        finally:
            if self._inotify is inotify:
                self._arming = None

    def _tell(self, path: str) -> None:
        if self._inotify is not None:
            self._callback(path, None)

    def _note(self, path: str, problem: str) -> None:
        if problem and self._problems.get(path) != problem:
            _log.warning("not watching %s: %s", path, problem)
        self._problems.pop(path, None)
        if problem:
            self._problems[path] = problem

    def _index(self, inotify: Inotify, before: list[_Role]) -> None:
        """Sort the roles by watch, and drop watches that have none any more."""
        self._wanted = {}
        for path, roles in self._roles.items():
            for watch, name in roles:
                self._wanted.setdefault(watch.wd, []).append((path, name))
        for watch, _ in before:
            if watch.wd not in self._wanted:
                with contextlib.suppress(OSError):  # gone with the directory
                    inotify.rm_watch(watch)


def _arm(inotify: Inotify, path: str) -> tuple[list[_Role], str]:
    """Watch a directory and every one that leads to it, as far as they exist; runs in a thread.

    It works from the top down, so that no directory can appear between the failure to watch it and
    the watch on its parent. Returns the watches, and why the last is missing, if it is.
    """
    roles: list[_Role] = []
    try:
        for directory, name in _steps(path):
            mask = _WATCHED if name is None else _ON_THE_WAY
            roles.append((inotify.add_watch(directory, mask), name))
    except OSError as error:
        # ENOSPC here is fs.inotify.max_user_watches, which its usual text does not suggest.
        hint = " (fs.inotify.max_user_watches)" if error.errno == errno.ENOSPC else ""
        return roles, f"{directory}: {os.strerror(error.errno or 0)}{hint}"
    return roles, ""


def _steps(path: str) -> Iterator[tuple[str, str | None]]:
    """Yield ``("/", "a"), ("/a", "b"), ("/a/b", None)`` for ``/a/b``."""
    directory = "/"
    for name in path.split("/"):
        if name:
            yield directory, name
            directory = os.path.join(directory, name)
    yield directory, None
