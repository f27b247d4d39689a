"""Who is in a pool: the first opens it, the last closes it, one at a time per volume."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from localvolume.backends.directory.projects import neighbours_on
from localvolume.backends.model import BackendFailed, NoSpace, NotThisVolume, Record
from localvolume.backends.pool.records import FULL, Records, UnreadableRecord
from localvolume.backends.pool.root import PoolRoot, PoolTaken, PoolUnusable
from localvolume.config.pools import PoolConfig


@contextmanager
def told(pool: str) -> Iterator[None]:
    """Turn what is raised within into BackendFailed, or NoSpace if the disk or a quota is full."""
    try:
        yield
    except PoolUnusable as error:
        raise BackendFailed(f"the pool {pool}: {error}") from error
    except OSError as error:
        kind = NoSpace if error.errno in FULL else BackendFailed
        raise kind(f"the pool {pool}: {error}") from error


class OpenPool:
    """An open pool and what is known of it; closed when its last user is done."""

    def __init__(self, root: PoolRoot) -> None:
        self.root = root
        self.records = Records(root.records, root.ours)
        self.records.clean()
        self.records.refresh()
        self.users = 1
        #: Volumes that are being made and have no record yet.
        self.reserved: dict[str, Record] = {}
        #: Volumes that something is being done with.
        self.busy: set[str] = set()
        #: The open pools of its filesystem, itself included.
        self.neighbours = neighbours_on(root.pool)
        #: Held while a place or a quota is chosen for a volume, until all others see it as taken.
        self.reserving = self.neighbours.choosing
        self.neighbours.join(os.fstat(root.pool).st_ino, self)

    def volumes(self) -> dict[str, Record]:
        """All volumes, including those that are being begun right now."""
        # In this order: a volume whose record is written meanwhile is then in one of the two.
        begun = dict(self.reserved)
        return {**self.records.all(), **begun}

    def others(self, name: str) -> dict[str, Record]:
        """The other volumes, including those that are being begun right now."""
        known = self.volumes()
        known.pop(name, None)
        return known

    def close(self) -> None:
        """Close the pool; harmless if done before."""
        self.neighbours.leave(self)
        self.root.close()


class Session:
    """Access to one pool, for many threads. No thread waits for the disk while it holds a lock that
    `close` needs: a disk that hangs holds up only its own callers. Nobody is let in while `why_not`
    returns a reason.
    """

    def __init__(
        self,
        config: PoolConfig,
        known_ids: Collection[str],
        open_root: Callable[
            [PoolConfig, Collection[str], Collection[str], Collection[str]], PoolRoot
        ] = PoolRoot,
        why_not: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._config = config
        self._open_root = open_root
        self._why_not = why_not
        #: Ids that PersistentVolumes of this node name for this pool; they may be set again.
        self.known_ids = frozenset(known_ids)
        #: Where volumes of older provisioners should lie.
        self.known_places: frozenset[str] = frozenset()
        #: Volumes that PersistentVolumes are of, and that no pool is known to have.
        self.missing: frozenset[str] = frozenset()
        # The id that was found here stays the only right one for the life of this process.
        self._seen = ""
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._closings = 0
        self._open: OpenPool | None = None

    def id(self) -> str:
        """The pool's id, without asking the disk if it is known; raises BackendFailed."""
        if not self._seen:
            with self.using():
                pass
        return self._seen

    def close(self) -> None:
        """Release the pool to others once everything under way in it has ended."""
        with self._lock:
            self._closings += 1
            using, self._open = self._open, None
            if using is not None:
                self._release(using)

    @contextmanager
    def using(self) -> Iterator[OpenPool]:
        """Yield the open pool, proved to be still the right one; raises BackendFailed."""
        with told(self._config.name):
            using = self._enter()
            try:
                yield using
            finally:
                with self._lock:
                    self._release(using)

    def _enter(self) -> OpenPool:
        if why_not := self._why_not():
            # Before anything is made in a directory that may be no pool's.
            self.close()
            raise PoolUnusable(why_not)
        using = self._hold()
        if using is None:
            with self._opening:
                using = self._hold() or self._begin()
        try:
            using.root.check(self._config)
        except BaseException:
            with self._lock:
                # Its proof no longer holds: it is opened again when it is next asked for.
                if self._open is using:
                    self._open = None
                    self._release(using)
                self._release(using)
            raise
        return using

    def _hold(self) -> OpenPool | None:
        with self._lock:
            if self._open is not None:
                self._open.users += 1
            return self._open

    def _begin(self) -> OpenPool:
        closings = self._closings
        known_ids = self.known_ids | ({self._seen} if self._seen else set())
        root = self._open_root(self._config, known_ids, self.known_places, self.missing)
        try:
            begun = OpenPool(root)
        except BaseException:
            root.close()
            raise
        try:
            self._begun(begun, closings)
        except BaseException:
            begun.close()
            raise
        return begun

    def _begun(self, begun: OpenPool, closings: int) -> None:
        with self._lock:
            if self._closings != closings:
                # The caller waits: a volume made in another pool meanwhile would be made twice.
                raise PoolTaken("it was closed meanwhile")
            self._seen = begun.root.id
            self._open = begun
            begun.users += 1

    def _release(self, using: OpenPool) -> None:
        using.users -= 1
        if not using.users:
            using.close()

    @contextmanager
    def doing(self, name: str) -> Iterator[tuple[OpenPool, Record | None]]:
        """As `using`, alone with one volume; also yields its current record."""
        with self.using() as using, self.alone(using, name) as known:
            yield using, known

    @contextmanager
    def alone(self, using: OpenPool, name: str) -> Iterator[Record | None]:
        """Keep other calls from one volume; yields its current record."""
        with self._lock:
            if name in using.busy:
                raise BackendFailed(f"something else is being done with {name}")
            using.busy.add(name)
        try:
            try:
                known = using.records.get(name)
            except UnreadableRecord as error:
                raise NotThisVolume(f"{error}: its volume is left alone") from error
            yield known
        finally:
            with self._lock:
                using.busy.discard(name)
