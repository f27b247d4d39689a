"""Snapshots of thin volumes, what differs between them, and who holds their pool's metadata."""

from localvolume.backends.lvm.store import LvmStore
from localvolume.backends.model import Record
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from tests.host.support_devices import command

from .support_lvm_store import Pool


def cut(store: LvmStore, origin: Record, name: str) -> Record:
    """A snapshot as it is told of."""
    return store.offered(store.copy(snapshot_record(origin, name, origin.size_bytes), origin))


def ranges_of(store: LvmStore, record: Record, base: Record | None) -> list[tuple[int, int]]:
    """All that is named of a snapshot."""
    found: list[tuple[int, int]] = []
    at = 0
    while True:
        page = store.blocks(record, base, at)
        found += page.ranges
        if page.until >= page.total_bytes:
            return found
        at = page.until


def held(pool: Pool) -> str:
    """Where the metadata lie that somebody reads; "-" while nobody does."""
    return command("dmsetup", "status", f"{pool.group}-pool-tpool").split()[6]


def reserve(pool: Pool, message: str = "reserve_metadata_snap") -> None:
    """As somebody else does who reads the pool's metadata, or, by its end, ends that."""
    command("dmsetup", "message", f"{pool.group}-pool-tpool", "0", message)
