"""The rules for pods' own volumes, which their specs ask for and no claim stands for: pure.

Such a volume is made when its pod is started and removed when that has ended: by the kubelet's
call, or, where that never comes, because the API server says that the pod is over and nothing of it
is mounted here. Anybody who may create pods asks for them, so only the pools' own limits count.
"""

from __future__ import annotations

from dataclasses import replace

from localvolume.config.pools import InlineConfig
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.config.syntax.readers import quoted
from localvolume.dynamic.calls import Differs, NoRoom, NotNow, OutOfRange, Refused, Wrong
from localvolume.dynamic.model import (
    Action,
    AnswerCall,
    AskPod,
    ClassFacts,
    InlineCall,
    Keep,
    MakeCalled,
    Pool,
    RemoveCalled,
    RemoveInline,
    RemoveInlineCall,
    Wish,
)
from localvolume.dynamic.plan.calls.finding import answer, completed, find
from localvolume.dynamic.plan.paths import owner_of
from localvolume.dynamic.plan.placing import Placing, choose, place
from localvolume.dynamic.plan.world import Found, World, rounded
from localvolume.kube.objects import Meta, PersistentVolumeClaim, StorageClass
from localvolume.volumes.capacity import quantity

_FILESYSTEMS = ("ext4", "xfs")


def judge_inline(world: World, call: InlineCall | RemoveInlineCall) -> Action:
    """The one action that the kubelet's call for a pod's own volume asks for."""
    try:
        if isinstance(call, RemoveInlineCall):
            return _remove(world, call)
        found = find(world, call.key)
        return _create(world, call) if found is None else _made(call, found)
    except Refused as refusal:
        return AnswerCall(key=call.key, reason=str(refusal), refusal=refusal)


def judge_idle(world: World, found: Found) -> Action:
    """What becomes of a complete one that no call is about. Where anything is unknown, it stays."""
    pool, record = found
    if record.pod_uid in world.facts.pods_with_mounts:
        return Keep(key=record.name, reason=f"pod {record.pod} has it mounted, or may have")
    is_over = world.facts.pods_over.get(record.pod_uid)
    if is_over is None:
        reason = f"nothing of pod {record.pod} is mounted: it may be over"
        return AskPod(key=record.name, reason=reason, record=record)
    if not is_over:
        return Keep(key=record.name, reason=f"pod {record.pod} is there, and may start")
    return RemoveInline(
        key=record.name,
        reason=f"pod {record.pod} is over, and nothing of it is mounted",
        pool=pool.config,
        record=record,
    )


# --- making ------------------------------------------------------------------------------------


def _create(world: World, call: InlineCall) -> Action:
    wanted, node = call.wanted, world.facts.node.name
    if wanted.fs_type and wanted.fs_type not in _FILESYSTEMS:
        raise Wrong(f"fsType must be {' or '.join(_FILESYSTEMS)}, not {quoted(wanted.fs_type)}")
    class_facts = _class_of(world, call)
    chosen = choose(world, class_facts, "Filesystem", wanted.size_bytes)
    if isinstance(chosen, str):
        raise NoRoom(f"node {node}: {chosen}")
    # No claim asks for it: its directory belongs to root, and every user may write to it.
    owner = owner_of(Wish(), PersistentVolumeClaim(metadata=Meta(name=call.key)), call.key)
    record = place(
        world,
        chosen,
        class_facts,
        Placing(call.key, wanted.size_bytes, "Filesystem", call.key, owner),
    )
    if isinstance(record, str):
        raise Wrong(record)
    world.inline[chosen.config.name] += rounded(chosen, wanted.size_bytes)
    return MakeCalled(
        key=call.key,
        reason=f"pod {wanted.pod} asks for it, and pool {chosen.config.name} has room",
        pool=chosen.config,
        record=replace(record, request=call.request, pod=wanted.pod, pod_uid=wanted.pod_uid),
    )


def _class_of(world: World, call: InlineCall) -> ClassFacts:
    """A class of the pools that let pods have such a volume. Raises Wrong, OutOfRange, NoRoom."""
    wanted, node = call.wanted, world.facts.node.name
    open_to_pods = [
        (pool, pool.config.inline)
        for pool in world.facts.pools
        if pool.config.inline is not None and wanted.pool in ("", pool.config.name, pool.config.of)
    ]
    if not open_to_pods:
        which = f"there is no pool {quoted(wanted.pool)}" if wanted.pool else "there is no pool"
        raise Wrong(f"node {node}: {which} that has the key `inline`, which lets pods' specs ask")
    whys = {
        pool.config.name: _over_size(inline, wanted.size_bytes) for pool, inline in open_to_pods
    }
    if all(whys.values()):
        raise OutOfRange(f"node {node}: {_listed(whys)}")
    whys = {
        pool.config.name: _over_total(world, pool, inline, wanted.size_bytes)
        for pool, inline in open_to_pods
        if not whys[pool.config.name]
    }
    if all(whys.values()):
        raise NoRoom(f"node {node}: {_listed(whys)}")
    names = frozenset(name for name, why in whys.items() if not why)
    return ClassFacts(
        object=StorageClass(metadata=Meta(), provisioner=CSI_DRIVER),
        wish=Wish(pools=names, fs_type=wanted.fs_type, inline=True),
    )


def _over_size(inline: InlineConfig, size: int) -> str:
    if size <= inline.largest_bytes:
        return ""
    return f"a pod's own volume has at most {quantity(inline.largest_bytes)}"


def _over_total(world: World, pool: Pool, inline: InlineConfig, size: int) -> str:
    left = inline.total_bytes - taken(world, pool)
    if rounded(pool, size) <= left:
        return ""
    return (
        f"{quantity(max(0, left))} are left of the {quantity(inline.total_bytes)} that pods' own"
        f" volumes may take, {quantity(size)} asked for"
    )


def taken(world: World, pool: Pool) -> int:
    """What pods' own volumes take of the pool: those being made, and those not yet deleted, too."""
    name = pool.config.name
    sizes = {
        record.name: record.size_bytes for record in pool.report.records.values() if record.pod_uid
    }
    sizes |= {
        record.name: record.size_bytes
        for where, record in world.facts.promised
        if where == name and record.pod_uid
    }
    return sum(rounded(pool, size) for size in sizes.values()) + world.inline[name]


def _listed(whys: dict[str, str]) -> str:
    return "; ".join(f"pool {name}: {why}" for name, why in whys.items() if why)


def _made(call: InlineCall, found: Found) -> Action:
    record = found.record
    if record.state == "removed":
        raise NotNow("the volume that had its name is being removed")
    if record.driver != CSI_DRIVER or not record.pod_uid:
        raise Differs("a volume that is no pod's own has its name")
    if (record.request, record.pod_uid) != (call.request, call.wanted.pod_uid):
        raise Differs(f"it was made by a call that asked for {record.request}")
    return answer(found, "it is made") if record.state == "offered" else completed(found)


# --- removing ----------------------------------------------------------------------------------


def _remove(world: World, call: RemoveInlineCall) -> Action:
    try:
        found = find(world, call.key)
    except NotNow as why:
        # Its pod must be able to end without the pool. `judge_idle` removes it later.
        return AnswerCall(key=call.key, reason=f"it is removed once that can be done: {why}")
    if found is None or found.record.state == "removed" or not found.record.pod_uid:
        return AnswerCall(key=call.key, reason="no pod has such a volume of its own")
    return RemoveCalled(
        key=call.key,
        reason=f"the kubelet is ending pod {found.record.pod}",
        pool=found.pool.config,
        record=found.record,
    )
