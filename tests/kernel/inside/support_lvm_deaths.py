"""A pool of logical volumes whose agents are killed: its tenants, and what they were promised."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localvolume.backends.lvm.store import LvmStore
from localvolume.backends.model import BackendFailed, PoolReport, Record
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from localvolume.host.lvm.commands import Lvm
from localvolume.host.lvm.gate import gate_of
from tests.host.support_devices import mounted
from tests.suite.units import MIB

from .support_kills import Order, Orders, forked
from .support_looks import GROUP, halves
from .support_lvm import DISKS, begin, clear
from .support_lvm_store import pool_on, read, write

#: How often a call is made again by the agent that lives.
_TRIES = 6
_GROUP_BYTES = 200 * MIB
_PATTERN = b"of somebody else"


@dataclass
class Tenant:
    """A volume as it was told of, and what its tenant wrote to it."""

    record: Record
    written: bytes = field(default=b"", repr=False)
    snapshots: dict[str, Record] = field(default_factory=dict)
    """Those of it, by name, which have what it has."""

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def raw(self) -> bool:
        return self.record.volume_mode == "Block"


class Deaths:
    """One pool, and agents that die in it."""

    def __init__(self, directory: Path, lvm: Lvm, thin_pool: str, reserve: int = 0) -> None:
        self.lvm = lvm
        self.thin_pool = thin_pool
        self.reserve = reserve
        self.orders = Orders(directory)
        self.tenants: dict[str, Tenant] = {}
        self.lives = 0
        self._directory = directory
        self._count = 0
        self.kept = {one.name: one.uuid for one in lvm.volumes(GROUP)}

    def node(self, name: str) -> str:
        return f"/dev/{GROUP}/{name}"

    # --- agents --------------------------------------------------------------------------------

    def once(self, act: Callable[[LvmStore], Any]) -> tuple[bool, Any]:
        """Do it in an agent of its own; whether that lived, and what came of it."""

        def life(run: Any) -> Any:
            # What the test's own process knows of the group is not this one's.
            gate_of(GROUP).doubt()
            pool = pool_on(GROUP, self._directory, thin_pool=self.thin_pool, run=run)
            why = ""
            for _ in range(_TRIES):
                try:
                    assert pool.store.attach_all() == {}
                    result = act(pool.store)
                except BackendFailed as failed:
                    why = str(failed)
                    continue
                report = pool.store.look()
                why = report.problem
                if not why:
                    return result, report
            raise AssertionError(f"it fails again and again: {why}")

        self.lives += 1
        status, result = forked(life, self.orders)
        assert status in (0, -9), f"the agent ended with {status}: {result}"
        return status == 0, result

    def insist(self, act: Callable[[LvmStore], Any], second: Order | None = None) -> Any:
        """Do it in one agent after the other."""
        for _ in range(10):
            lived, result = self.once(act)
            if lived:
                self.orders.give(None)
                value, report = result
                self.check_report(report)
                return value
            self.orders.give(second)
            second = None
        raise AssertionError("agents die though nobody kills them")

    def check_report(self, report: PoolReport) -> None:
        assert not report.unreadable, report
        assert not report.orphans, report

    # --- a volume's life -----------------------------------------------------------------------

    def make(
        self, *, raw: bool, mib: int, overwrite: bool | None = None, second: Order | None = None
    ) -> Tenant:
        """A volume that is overwritten when it goes; None: each third is, another is discarded."""
        self._count += 1
        discard = overwrite is None and self._count % 3 == 1
        if overwrite is None:
            overwrite = self._count % 3 == 0
        name = f"pvc-{self._count}"
        record = Record(
            name=name,
            backend="lvm",
            state="making",
            directory="",
            size_bytes=mib * MIB,
            claim_uid=f"uid-{name}",
            volume_mode="Block" if raw else "Filesystem",
            overwrite=overwrite,
            discard=discard,
        )
        made = self.insist(lambda store: store.make(record), second)
        assert (made.state, made.size_bytes) == ("made", mib * MIB)
        self.tenants[name] = tenant = Tenant(made)
        self.move_in(tenant)
        return tenant

    def move_in(self, tenant: Tenant) -> None:
        """What was handed out is empty; from now on it is not."""
        content = (f"of {tenant.name} ".encode() * 8192)[:65536]
        size = tenant.record.size_bytes
        if tenant.raw:
            self.all_zero(tenant.name, 0, size)
            for start in range(0, size, 1 << 20):
                write(self.node(tenant.name), content, start)
        else:
            with mounted(self.node(tenant.name)) as where:
                found = [one.name for one in where.iterdir() if one.name != "lost+found"]
                assert not found, f"{tenant} was handed out with {found} in it"
                (where / "data").write_bytes(content * 32)
        tenant.written = content

    def all_zero(self, name: str, start: int, end: int) -> None:
        for at in range(start, end, 1 << 20):
            left = read(self.node(name), min(1 << 20, end - at), at).strip(b"\0")
            assert not left, f"{name} was handed out with {left[:80]!r} in it"

    def offer(self, tenant: Tenant, second: Order | None = None) -> None:
        record = tenant.record
        tenant.record = self.insist(
            lambda store: store.offered(record, f"uid-{record.name}"), second
        )

    def grow(self, tenant: Tenant, size_bytes: int, second: Order | None = None) -> None:
        record, had = tenant.record, tenant.record.size_bytes
        tenant.record = self.insist(lambda store: store.grow(record, size_bytes), second)
        assert tenant.record.size_bytes == size_bytes
        if tenant.raw:
            self.all_zero(tenant.name, had, size_bytes)

    def snapshot(self, tenant: Tenant, second: Order | None = None) -> None:
        origin, name = tenant.record, f"snap-{tenant.name}"
        in_full = not self.thin_pool
        wanted = snapshot_record(
            origin, name, origin.size_bytes, full_copies=in_full, reserve_bytes=self.reserve
        )

        def act(store: LvmStore) -> Record:
            return store.offered(store.copy(wanted, origin))

        tenant.snapshots[name] = self.insist(act, second)

    def clone(self, tenant: Tenant, second: Order | None = None) -> None:
        """Of a snapshot; it is larger, and has what its tenant wrote until that was cut."""
        ((_, origin),) = tenant.snapshots.items()
        size = origin.size_bytes + 4 * MIB
        asked = replace(origin, name=f"clone-{tenant.name}", state="making", size_bytes=size)
        asked = replace(asked, snapshot_of="", made_from=origin.name, cut_at=0, holds_bytes=0)
        asked = replace(asked, reserve_bytes=0)
        # For a claim, which says so later.
        asked = replace(asked, request="")
        made = self.insist(lambda store: store.copy(asked, origin), second)
        assert (made.state, made.size_bytes) == ("made", size)
        copied = Tenant(made, tenant.written)
        self.look_in_on(copied)
        self.tenants[copied.name] = copied
        self.check(copied)
        self.remove(copied)

    def unsnapshot(self, tenant: Tenant, second: Order | None = None) -> None:
        ((name, record),) = tenant.snapshots.items()
        volume = self.lvm.volume(GROUP, name)
        assert volume is not None
        if not self.reserve:
            self.lvm.activate(volume)
            self.look_in_on(Tenant(record, tenant.written), name)
            self.lvm.deactivate(volume)

        def act(store: LvmStore) -> None:
            report = store.look()
            if report.problem:
                # What is not in it may be there all the same.
                raise BackendFailed(report.problem)
            if (known := report.records.get(name)) is not None:
                store.purge(store.retire(known), stop=threading.Event())

        self.insist(act, second)
        tenant.snapshots.clear()

    def remove(self, tenant: Tenant, second: Order | None = None) -> None:
        record = tenant.record
        # From the first attempt on nobody may count on its data.
        del self.tenants[tenant.name]

        def act(store: LvmStore) -> None:
            if record.state == "made":
                store.take_away(record)
                return
            report = store.look()
            if report.problem:
                # What is not in it may be there all the same.
                raise BackendFailed(report.problem)
            if (known := report.records.get(record.name)) is not None:
                store.purge(store.retire(known), stop=threading.Event())

        self.insist(act, second)

    # --- the observer --------------------------------------------------------------------------

    def check(self, whom: Tenant | None = None) -> None:
        """All that was promised is there, and nothing else; `whom`: one whose files to look at,
        those of all where it is None.
        """
        assert halves() == []
        there = {one.name: one for one in self.lvm.volumes(GROUP)}
        for name, uuid in self.kept.items():
            assert there[name].uuid == uuid, f"{name} was nobody's to remove"
        snapshots = {name for one in self.tenants.values() for name in one.snapshots}
        wanted = self.kept.keys() | self.tenants.keys() | snapshots
        assert there.keys() == wanted, (
            f"missing: {sorted(wanted - there.keys())}, "
            f"nobody's: {[there[name] for name in sorted(there.keys() - wanted)]}"
        )
        for name in snapshots:
            shown = there[name].active
            assert shown == bool(self.reserve), f"the snapshot {name}: a device {shown}"
        for tenant in self.tenants.values():
            volume = there[tenant.name]
            assert volume.active, tenant
            assert volume.size_bytes == tenant.record.size_bytes, tenant
            if tenant.raw or whom in (None, tenant):
                self.look_in_on(tenant)

    def look_in_on(self, tenant: Tenant, name: str = "") -> None:
        node = self.node(name or tenant.name)
        if tenant.raw:
            assert read(node, 65536) == tenant.written, f"{tenant}: its data is gone"
            return
        with mounted(node) as where:
            data = (where / "data").read_bytes()
            assert data == tenant.written * 32, f"{tenant}: its data is gone"
            found = os.statvfs(where)
            room = found.f_blocks * found.f_frsize
            assert room > 0.6 * tenant.record.size_bytes, f"{tenant} has room for {room}"


@contextlib.contextmanager
def group_of_pattern() -> Iterator[None]:
    """A group whose extents hold what somebody wrote before."""
    disk = DISKS[0]
    with open(disk, "wb") as device:
        device.writelines([_PATTERN * (MIB // len(_PATTERN))] * (_GROUP_BYTES // MIB + 4))
    begin(GROUP, disk, use_bytes=_GROUP_BYTES)
    try:
        yield
    finally:
        clear(GROUP, disk)
