"""The pools of this node: opened as configured, looked at together, called one volume at a time.

A pool whose filesystem hangs blocks its own threads only. Each pool has further threads for
purges, which may take days.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar
from weakref import WeakValueDictionary

from localvolume.backends.lvm.zeroing import Zeroing
from localvolume.backends.model import BackendFailed, GoesOn, PoolReport, Progress, Record
from localvolume.backends.pool.pool import PoolStore
from localvolume.backends.store import Store
from localvolume.config.pools import PoolConfig
from localvolume.dynamic.model import Pool
from localvolume.dynamic.patterns import Patterns
from localvolume.dynamic.plan.orphans import places_of_adopted
from localvolume.dynamic.plan.world import pool_of, with_neighbours
from localvolume.host.filesystem.freezing import NOTES, FreezeFailed, notes_in, thaw_left
from localvolume.host.process.commandsync import on_loop
from localvolume.host.process.workers import Hung, Workers
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes.objects import is_csi, record_name_of

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
LVM_LOOK_SECONDS = 60.0
"""How long one look at a pool may take before the pool counts as hung; the first look at a volume
group also repairs what killed commands left."""

CALL_SECONDS = 120.0
"""How long making, growing or removing one volume may take; formatting a large image takes long."""

COPY_SECONDS = 4 * 3600.0
"""How long copying all data of a volume may take, or a part where others have turns between."""

COPIERS = 2
"""How many volumes of one pool are copied in full at the same time: they share its disks."""

PURGERS = 4
"""How many removed volumes of one pool are purged at the same time."""

PURGE_SECONDS = 7 * 86400.0

R = TypeVar("R")


@dataclass(eq=False, slots=True)
class _Copiers:
    """Who copies the volumes of one pool in full: copies that hang hold up no other pool's."""

    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(COPIERS))
    workers: Workers = field(default_factory=lambda: Workers(limit=COPIERS))


class Pools:
    """The open stores, by the pool's name. Use from one event loop.

    `misplaced` says why a pool must not be used: nothing is done in such a pool. `frozen` is where
    it is noted what may be frozen (``freezing``).
    """

    def __init__(
        self,
        workers: Workers,
        zeroing: Zeroing | None = None,
        misplaced: Callable[[PoolConfig], str | None] = lambda _: None,
        frozen: str = NOTES,
    ) -> None:
        self._workers = workers
        self._frozen = frozen
        self._unthawed = ""
        """Why something frozen cannot be thawed, as it was said."""
        self._misplaced = misplaced
        self._zeroing = zeroing
        self._stores: dict[str, Store] = {}
        self._configs: dict[str, PoolConfig] = {}
        self._reports: dict[str, PoolReport] = {}
        self._attached: set[str] = set()
        self._unattached: dict[str, Mapping[str, str]] = {}
        """Why volumes cannot be attached, as it was said, by the pool's name and theirs."""
        self._stops: dict[str, threading.Event] = {}
        """By the pool's name. Set once it is closed or the agent ends, to end what takes long."""
        self._purgers: dict[str, Workers] = {}
        """By the pool's name. They stay when the pool is reconfigured: what hangs in it still
        hangs."""
        self._copiers: dict[str, _Copiers] = {}
        """The same."""
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """By the pool's name and the volume's, as long as somebody has or awaits its turn."""
        self._ending = False
        self._patterns = Patterns(workers)

    async def expand(
        self, configs: Iterable[PoolConfig], volumes: Iterable[PersistentVolume]
    ) -> tuple[PoolConfig, ...]:
        """The pools as they are to be configured: one for each group that a pattern matches."""
        return await self._patterns.expand(list(configs), list(volumes))

    @property
    def unexpanded(self) -> Mapping[str, str]:
        """Why LVM cannot be asked what patterns match, by the pool's name."""
        return self._patterns.problems

    def configure(self, configs: Iterable[PoolConfig], volumes: Iterable[PersistentVolume]) -> None:
        """Open what is new or changed and close what is not wanted any more.

        `volumes` name the ids of the pools that they were made in: a pool with another id is not
        the same pool any more. Those that CSI calls made name none: while no pool is known to have
        one of them, no pool is made anew.
        """
        wanted = {config.name: config for config in configs}
        for name in list(self._configs):
            if wanted.get(name) != self._configs[name]:
                self._close(name)
        for name in self._purgers.keys() - wanted.keys():
            self._purgers.pop(name).close()
            self._copiers.pop(name).workers.close()
        volumes = list(volumes)
        known, places = ids_by_pool(volumes), places_of_adopted(list(wanted.values()), volumes)
        missing = handles_of_called(volumes) - self._recorded()
        for name, config in wanted.items():
            if name not in self._stores:
                self._configs[name] = config
                self._stores[name] = self._new_store(config)
                self._stops[name] = threading.Event()
                self._purgers.setdefault(name, Workers(limit=PURGERS))
                self._copiers.setdefault(name, _Copiers())
                if self._ending:
                    self._stops[name].set()
            # Counts each time that the store is opened.
            self._stores[name].know(known.get(name, set()), places.get(name, set()), missing)

    def _recorded(self) -> set[str]:
        """The names of all records that the last looks found."""
        return {
            record
            for report in self._reports.values()
            for record in (*report.records, *report.dormant, *report.unreadable)
        }

    def close(self) -> None:
        """Let other agents have the pools."""
        for name in list(self._stores):
            self._close(name)
        for purgers in self._purgers.values():
            purgers.close()
        for copiers in self._copiers.values():
            copiers.workers.close()

    def stop_purges(self) -> None:
        """End purges between two files, for good: the next agent begins them again."""
        self._ending = True
        for stop in self._stops.values():
            stop.set()

    def _close(self, name: str) -> None:
        # Tell purges to stop before the store is closed: the next user gets the pool once nobody
        # works in it any more, and a purge may take hours.
        store = self._stores.pop(name)
        self._stops.pop(name).set()
        store.close()
        del self._configs[name]
        self._reports.pop(name, None)
        self._attached.discard(name)
        self._unattached.pop(name, None)

    def _in_store(self, name: str, act: Callable[[Store], R]) -> Callable[[], R]:
        """Wraps `act` for a worker: with the store that is open now; GoesOn once it is closed."""
        store = self._stores[name]

        def closed() -> bool:
            return self._stores.get(name) is not store

        def call() -> R:
            if closed():
                raise GoesOn(f"pool {name} was closed meanwhile")
            try:
                return act(store)
            finally:
                if closed():
                    # The store was closed before `act` got to it, which opened it again.
                    store.close()

        return call

    def _new_store(self, config: PoolConfig) -> Store:
        why_not = functools.partial(self._misplaced, config)
        # Imported as needed: an agent loads only the backends that it has pools for.
        match config.backend:
            case "directory":
                from localvolume.backends.directory.backend import DirectoryBackend

                return PoolStore(config, DirectoryBackend(), why_not=why_not)
            case "btrfs":
                from localvolume.backends.btrfs.backend import BtrfsBackend

                return PoolStore(config, BtrfsBackend(), why_not=why_not)
            case "image":
                from localvolume.backends.image.backend import ImageBackend

                run = on_loop(asyncio.get_running_loop())
                images = ImageBackend(run, notes=self._frozen)
                return PoolStore(config, images, why_not=why_not)
            case "lvm":
                from localvolume.backends.lvm.store import LvmStore

                run = on_loop(asyncio.get_running_loop())
                return LvmStore(config, run, zeroing=self._zeroing)

    # --- looking -------------------------------------------------------------------------------

    async def look(self) -> list[Pool]:
        """Returns all pools as they are now, each with what its neighbours have promised. If a pool
        does not answer, that is its problem."""
        await self._thaw()
        reports = await asyncio.gather(*(self._look(name) for name in self._stores))
        found = []
        for report in reports:
            if report.name in self._configs:
                self._reports[report.name] = report
                found.append(Pool(config=self._configs[report.name], report=report))
        return with_neighbours(found)

    async def _thaw(self) -> None:
        """Thaw what an agent that died left frozen, before anything is done in a pool."""
        try:
            names = await self._workers.call("frozen", LOOK_SECONDS, notes_in, self._frozen)
            said = await asyncio.gather(*(self._thaw_by(name) for name in names))
            why = "; ".join(filter(None, said))
        except (Hung, OSError) as error:
            why = str(error)
        if why and why != self._unthawed:
            log.error(
                "what was frozen for a cut cannot be thawed; this is tried again at every look: %s",
                why,
            )
        self._unthawed = why

    async def _thaw_by(self, note: str) -> str:
        """Returns what failed. A disk that hangs keeps no other from being thawed."""
        try:
            failed = await self._workers.call(
                f"frozen, note {note}", LOOK_SECONDS, thaw_left, note, self._frozen
            )
        except (Hung, OSError, FreezeFailed) as error:
            return str(error)
        return "; ".join(f"{device}: {text}" for device, text in sorted(failed.items()))

    async def _look(self, name: str) -> PoolReport:
        seconds = LVM_LOOK_SECONDS if self._configs[name].lvm else LOOK_SECONDS
        store = self._stores[name]
        try:
            look = self._in_store(name, lambda store: store.look())
            report = await self._workers.call(f"pool {name}", seconds, look)
        except Hung as error:
            return store.unseen(f"it does not answer: {error}")
        except GoesOn as error:
            return store.unseen(str(error), taken=True)
        if report.problem or report.astray:
            # When it can be used again, it may be on another disk.
            self._attached.discard(name)
        if report.astray:
            text = "pool %s: these led to something that is not theirs, and are attached anew: %s"
            log.error(text, name, ", ".join(sorted(report.astray)))
        if not report.problem and name not in self._attached:
            await self._attach(name)
            report = _with_unattached(report, self._configs.get(name), self._unattached.get(name))
        if _is_useless(self._configs.get(name), report) and name in self._stores:
            # To repair it, people unmount it first, which an open pool would prevent.
            self._stores[name].close()
        return report

    async def _attach(self, name: str) -> None:
        """Make volumes usable again after a reboot, before anything else is done."""
        try:
            attach = self._in_store(name, lambda store: store.attach_all())
            failed = await self._workers.call(f"pool {name}", CALL_SECONDS, attach)
        except (Hung, OSError, BackendFailed) as error:
            self._say_unattached(name, {"": str(error)})
            return
        self._say_unattached(name, failed)
        if not failed:
            self._attached.add(name)

    def _say_unattached(self, name: str, failed: Mapping[str, str]) -> None:
        """Say what is new; attaching is tried again at every look."""
        said = self._unattached.get(name, {})
        for volume, why in failed.items():
            if said.get(volume) != why:
                what = volume or "volumes"
                log.error("pool %s: %s cannot be attached: %s", name, what, why)
        self._unattached[name] = failed

    # --- calling -------------------------------------------------------------------------------

    # Both raise BackendFailed, Hung and OSError.

    async def call(
        self,
        pool: PoolConfig,
        name: str,
        act: Callable[[Store], R],
        *,
        origin: str = "",
        also: Collection[str] = (),
        in_full: bool = False,
    ) -> R:
        """Do `act` to the volume of that name, in the pool's store; Store says what there is.

        Waits while another call is about this volume, about `origin`, whose content it reads, or
        `also` about others. `in_full`: all of that is copied, for which there may be a queue; if
        `act` says that it goes on, it is done again, and others have their turns in between.
        """
        names = {name, origin or name, *also}
        if not in_full:
            return await self._in_turn(pool, name, act, names, self._workers, CALL_SECONDS)
        self._check(pool)
        copiers = self._copiers[pool.name]
        # First: whoever waits for a turn of the origin does not wait for others' copies.
        async with copiers.places:
            while True:
                with contextlib.suppress(GoesOn):
                    return await self._in_turn(
                        pool, name, act, names, copiers.workers, COPY_SECONDS
                    )

    async def _in_turn(
        self,
        pool: PoolConfig,
        name: str,
        act: Callable[[Store], R],
        names: Collection[str],
        workers: Workers,
        seconds: float,
    ) -> R:
        async with contextlib.AsyncExitStack() as turns:
            # In one order, so that no two wait for each other.
            for one in sorted(names):
                turn = self._turns.setdefault((pool.name, one), asyncio.Lock())
                await turns.enter_async_context(turn)
            self._check(pool)
            key = f"pool {pool.name}: {name}"
            return await workers.call(key, seconds, self._in_store(pool.name, act))

    async def purge(self, pool: PoolConfig, record: Record, progress: Progress) -> None:
        """Delete what is in the trash.

        Raises GoesOn if the pool is reconfigured meanwhile: its new store deletes what is left.
        """
        self._check(pool)
        stop = self._stops[pool.name]

        def purge(store: Store) -> None:
            store.purge(
                record,
                stop=stop,
                files_per_second=pool.purge_files_per_second,
                progress=progress,
            )

        key = f"pool {pool.name}: {record.name}"
        try:
            act = self._in_store(pool.name, purge)
            await self._purgers[pool.name].call(key, PURGE_SECONDS, act)
        except BackendFailed as error:
            if stop.is_set() and not self._ending:
                raise GoesOn(f"pool {pool.name} is configured otherwise now: {error}") from error
            raise

    def id_of(self, pool: PoolConfig) -> str:
        """The pool's id, as the last look found it."""
        report = self._reports.get(pool.name)
        if report is None or not report.id:
            raise BackendFailed(f"pool {pool.name} is not open")
        return report.id

    def host_path(self, pool: PoolConfig, record: Record) -> str:
        """The path that the volume's PersistentVolume names."""
        self._check(pool)
        return self._stores[pool.name].host_path(record)

    def _check(self, pool: PoolConfig) -> None:
        if self._configs.get(pool.name) != pool:
            raise BackendFailed(f"pool {pool.name} is configured otherwise now")


def _is_useless(config: PoolConfig | None, report: PoolReport) -> bool:
    """Whether nothing lies in the pool, and it cannot do what its configuration says."""
    if config is None or report.problem or report.records:
        return False
    return config.enforce and not report.abilities.enforce


def _with_unattached(
    report: PoolReport, config: PoolConfig | None, failed: Mapping[str, str] | None
) -> PoolReport:
    """Adds a warning to the report if there are volumes that cannot be used."""
    if config is None or not failed:
        return report
    name, why = min(failed.items())
    text = f"{name}: {why}" if name else why
    if len(failed) > 1:
        text += f" (and {len(failed) - 1} more)"
    if config.host_dir:
        text += f"; where its files were copied here: localvolume restamp {config.host_dir}"
    return replace(report, warnings=(*report.warnings, f"volumes cannot be used: {text}"))


def handles_of_called(volumes: Iterable[PersistentVolume]) -> set[str]:
    """The handles of those that a CSI call made."""
    return {record_name_of(one) for one in volumes if is_csi(one) and pool_of(one) is None}


def ids_by_pool(volumes: Iterable[PersistentVolume]) -> dict[str, set[str]]:
    """The pool ids that must be found again; those of never claimed volumes would not matter."""
    found: dict[str, set[str]] = {}
    for volume in volumes:
        said = pool_of(volume)
        if said is not None:
            found.setdefault(said[0], set()).add(said[1])
    return found
