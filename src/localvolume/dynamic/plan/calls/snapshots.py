"""The rules for calls that cut a snapshot of one volume. Pure."""

from __future__ import annotations

from dataclasses import replace

from localvolume.backends.capacity import most_of_cut
from localvolume.backends.model import Record
from localvolume.dynamic.calls import Differs, NoRoom, NotNow, Unknown, Wrong
from localvolume.dynamic.model import Action, MakeCalled, SnapshotCall
from localvolume.dynamic.plan.calls.content import check_content, check_copies, is_source
from localvolume.dynamic.plan.calls.finding import answer, check_here, completed, find
from localvolume.dynamic.plan.given import check_kept
from localvolume.dynamic.plan.world import Found, World, rounded
from localvolume.volumes.attributes import NONE
from localvolume.volumes.capacity import quantity
from localvolume.volumes.objects import volumes_of_claims


def cut(world: World, call: SnapshotCall, found: Found | None) -> Action:
    """Cut it, go on with it, or answer with what is there. Raises Refused."""
    if found is not None:
        record = found.record
        if record.state == "removed":
            raise NotNow("what had its name is being removed")
        if record.group:
            raise Differs(f"a snapshot of group {record.group} has that name")
        if record.snapshot_of != call.source:
            raise Differs("a volume, or a snapshot of another one, has that name")
        if record.state == "making":
            check_holder(world, call.source, call.namespace)
        if record.state != "offered":
            return completed(found, call.namespace)
        check_content(found)
        return answer(found, "it is cut")
    origin = find(world, call.source)
    check_here(world, call.source, origin)
    if origin is None or not is_source(origin.record, snapshot=False):
        raise Unknown(f"there is no volume {call.source} here")
    check_holder(world, call.source, call.namespace)
    pool, of = origin
    check_copies(pool, full=call.full_copies, reserve=call.reserve is not None)
    if why := pool.report.abilities.no_snapshots:
        raise Wrong(f"pool {pool.config.name}: {why}")
    reserve = 0
    if call.reserve is not None and pool.report.abilities.reserves:
        reserve = call.reserve.of(of.size_bytes)
        most = rounded(pool, reserve)
    else:
        most = most_of_cut(of, pool.report.usage.get(of.name))
    if (left := world.capacity[pool.config.name]) < most:
        raise NoRoom(
            f"pool {pool.config.name}: {quantity(left)} of room left, and the snapshot may come to"
            f" hold {quantity(most)}"
        )
    world.take(pool.config.name, most)
    return MakeCalled(
        key=call.key,
        reason=f"a call asks for a snapshot of {call.source}",
        pool=pool.config,
        record=snapshot_record(
            of, call.key, most, full_copies=call.full_copies, reserve_bytes=reserve
        ),
        origin=of,
        namespace=call.namespace,
    )


def check_holder(world: World, source: str, namespace: str) -> None:
    """Raises Unknown if a claim of the namespace asked, and none of that namespace has the volume,
    and NotNow if the volume is kept from its claim.

    A content waits for as long as it takes. Meanwhile its claim may be deleted, and the
    PersistentVolume given to a claim of another tenant.
    """
    check_kept(world, source)
    if namespace and (namespace, source) not in volumes_of_claims(world.volumes_of(source)):
        raise Unknown(f"no claim of namespace {namespace} has volume {source} any more")


def snapshot_record(
    origin: Record,
    name: str,
    holds_bytes: int,
    *,
    full_copies: bool = False,
    reserve_bytes: int = 0,
) -> Record:
    """The record of a snapshot that is to be cut."""
    return replace(
        origin,
        name=name,
        state="making",
        directory=name if origin.directory else "",
        inode=0,
        project=0,
        claim="",
        claim_uid="",
        given=(),
        generation=0,
        volume_uid="",
        request=f"snapshot of {origin.name}",
        snapshot_of=origin.name,
        made_from="",
        full_copies=full_copies,
        cut_at=0,
        holds_bytes=holds_bytes,
        reserve_bytes=reserve_bytes,
        trash="",
        attributes=NONE,
    )
