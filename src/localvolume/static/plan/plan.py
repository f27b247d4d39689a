"""What should happen to the static volumes of a node, and why: pure, from facts to actions.

`plan` looks at every PersistentVolume of the node and at every entry of its discovery directories
that none of them offers. Each rule of the two tables answers with the actions it wants or with
None; the first answer counts. Nothing else in the project decides what happens to a static volume.

Whatever is not known for certain ends in a `Hold`: the data stays, the reason is said, and the
same facts are looked at again later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from localvolume.cleaning.method import MethodInvalid
from localvolume.config.model import ClassConfig
from localvolume.kube.objects import PersistentVolume
from localvolume.static.model import (
    Action,
    Adopt,
    Ask,
    Clean,
    CleanFirst,
    Content,
    Entry,
    Facts,
    Hold,
    Keep,
    KeepRecord,
    LetGo,
    MarkClaimed,
    Publish,
    Reclaim,
    StopJob,
    Withdraw,
)
from localvolume.static.plan.content import is_offerable, method_for
from localvolume.static.plan.world import ITS_OWN, THE_SAME, World
from localvolume.volumes import marks
from localvolume.volumes.identity import knows_more
from localvolume.volumes.names import spare_volume_name
from localvolume.volumes.objects import (
    claim_of,
    claims_of,
    ever_claimed,
    generation_of,
    is_being_deleted,
    is_finalized,
    is_held_by_claim,
    is_on_node,
    path_of,
    phase_of,
    recorded_identity,
)
from localvolume.volumes.record import Record, Unreadable, held_by, of_object

if TYPE_CHECKING:
    from localvolume.cleaning.jobs import CleaningJob

EVENT_FAILED_DELETE = "VolumeFailedDelete"
EVENT_UNSUPPORTED_POLICY = "VolumeUnsupportedReclaimPolicy"
EVENT_UNKNOWN_POLICY = "VolumeUnknownReclaimPolicy"
EVENT_VANISHED = "VolumeVanished"
EVENT_REPLACED = "VolumeReplaced"
EVENT_NOT_ITS_OWN = "VolumeNotItsOwn"
EVENT_SIZE_DIFFERS = "VolumeSizeDiffers"
EVENT_DUPLICATE = "VolumeDuplicate"
EVENT_NOT_RECORDED = "VolumeNotRecorded"
EVENT_WAITS = "VolumeCleaningWaits"
EVENT_PUT_RIGHT = "VolumePutRight"
EVENT_NAMES_TAKEN = "VolumeNamesTaken"

Answer = Sequence[Action] | None


def plan(facts: Facts) -> list[Action]:
    """Every action that these facts call for, in the order of the paths they are about."""
    world = World(facts)
    actions: list[Action] = []
    for volume in facts.volumes.values():
        actions += next(answer for rule in VOLUME_RULES if (answer := rule(world, volume)))
    for entry in facts.entries:
        if not world.offers_of(entry.host_path):
            actions += next(answer for rule in ENTRY_RULES if (answer := rule(world, entry)))
    return sorted(actions, key=lambda action: action.key)


def is_to_come(action: Action) -> bool:
    """Whether the action shows that a volume is still to be offered, or looked into."""
    if isinstance(action, Hold) and action.volume is None and action.entry is not None:
        problem = action.entry.problem
        return problem.code == "reading" if problem else action.entry.content is None
    return isinstance(action, Publish | CleanFirst | Ask)


# --- PersistentVolumes -------------------------------------------------------------------------


def being_deleted(world: World, volume: PersistentVolume) -> Answer:
    """Deletion is asked for: clean what a claim left, or let the object go, or hold it."""
    if not is_being_deleted(volume):
        return None
    key, policy = path_of(volume), volume.spec.persistent_volume_reclaim_policy
    if not is_finalized(volume):
        return [Keep(key, "it is being deleted and another finalizer keeps it", volume)]
    if is_held_by_claim(volume):
        kept = Keep(key, "it is being deleted and its claim is still there", volume)
        return _stop_job(world, volume, "a claim holds it again") or [kept]
    if policy != "Delete":
        # Without its object, a Job would belong to nobody and still destroy data.
        if stopped := _stop_job(world, volume, f"its reclaim policy is {policy} now"):
            return stopped
        return [LetGo(key, f"reclaim policy {policy}: the data stays as it is", volume)]
    if not ever_claimed(volume):
        return [LetGo(key, "no claim ever held it", volume)]
    entry, obstacle = world.entry_of(volume), world.obstacle(volume)
    if entry is None or obstacle:
        # An API server restored to an older state brings back Jobs too.
        strange = entry and world.strange(volume, entry)
        if strange and (stopped := _stop_job(world, volume, strange)):
            return stopped
        return [_cannot_clean(world, volume, obstacle or "its volume is not known")]
    if waits := _wait_for_job(world, volume):
        return [waits]
    return [_clean(world, volume, entry)]


def released(world: World, volume: PersistentVolume) -> Answer:
    """Its claim is gone: the reclaim policy written on the object decides, never the class's."""
    if phase_of(volume) != "Released":
        return None
    key, policy = path_of(volume), volume.spec.persistent_volume_reclaim_policy
    if policy == "Retain":
        return [Keep(key, "reclaim policy Retain: nothing is done, ever", volume)]
    if policy == "Recycle":
        text = "reclaim policy Recycle is not supported"
        return [Hold(key, text, "policy", volume, event=EVENT_UNSUPPORTED_POLICY)]
    if policy != "Delete":
        text = f"reclaim policy {policy!r} is not known"
        return [Hold(key, text, "policy", volume, event=EVENT_UNKNOWN_POLICY)]
    entry, obstacle = world.entry_of(volume), world.obstacle(volume)
    if entry is None or obstacle:
        return [_cannot_clean(world, volume, obstacle or "its volume is not known")]
    if needs := _adoption(volume, entry):
        return [needs]
    if waits := _wait_for_job(world, volume):
        return [waits]
    return [Reclaim(key, "its claim is gone and its reclaim policy is Delete", volume, entry)]


def bound(world: World, volume: PersistentVolume) -> Answer:
    """A claim holds it: only our own marks are ever changed, and its health is reported."""
    if phase_of(volume) != "Bound":
        return None
    actions: list[Action] = []
    entry, same = world.entry_of(volume), _known_same(world, volume)
    if world.misplaced(volume):
        pass  # If it is not ours, our finalizer would keep it from ever being deleted.
    elif needs := _adoption(volume, same, complete=True) or _record(world, volume, same):
        actions.append(needs)
    elif _is_to_be_marked(volume, same):
        actions.append(MarkClaimed(path_of(volume), "a claim holds it", volume, same))
    health = _health(world, volume, entry)
    return [*actions, health or Keep(path_of(volume), "a claim holds it", volume, entry)]


def offered(world: World, volume: PersistentVolume) -> Answer:
    """No claim holds it: it must be what it says, or it is not offered any longer."""
    if phase_of(volume) not in ("Available", "Pending"):
        return None
    key, entry = path_of(volume), world.entry_of(volume)
    if reason := world.misplaced(volume):
        return [Hold(key, reason, "misplaced", volume)]
    same = _known_same(world, volume)
    if same is None or not world.strange(volume, same):
        needs = _adoption(volume, same, complete=True) or _record(world, volume, same)
        if needs:
            return [needs]
    health = _health(world, volume, entry)
    if health is None:
        return [Keep(key, "it is offered", volume, entry)]
    if ever_claimed(volume) or health.code == "unknown":
        return [health]
    if health.code == "vanished":
        missing = world.facts.missing_seconds.get(volume.metadata.uid, 0.0)
        left = world.facts.grace_seconds - missing
        if left > 0:
            text = f"{health.reason}; it is withdrawn if it stays so"
            return [Hold(key, text, "vanished", volume, entry, again_seconds=left)]
    if health.code == "duplicate" and world.yields_to(volume) is None:
        return [Keep(key, "it is offered", volume, entry)]
    return [Withdraw(key, f"no claim ever held it, and {health.reason}", volume)]


def in_another_phase(_world: World, volume: PersistentVolume) -> Answer:
    phase = phase_of(volume)
    return [Hold(path_of(volume), f"its phase is {phase}: somebody must look", "phase", volume)]


VOLUME_RULES: tuple[Callable[[World, PersistentVolume], Answer], ...] = (
    being_deleted,
    released,
    bound,
    offered,
    in_another_phase,
)


def _cannot_clean(world: World, volume: PersistentVolume, reason: str) -> Hold:
    text = f"not cleaned, the data stays: {reason}"
    return Hold(
        path_of(volume),
        text,
        "not-cleaned",
        volume,
        event=EVENT_FAILED_DELETE,
        again_seconds=world.facts.paces.look_again,
    )


def _wait_for_job(world: World, volume: PersistentVolume) -> Hold | None:
    """Holds it if another Job may be at work on it: it is not cleaned nor its object deleted."""
    if job := world.other_job(volume):
        text = f"not cleaned yet: {_at_work(job)}"
        return Hold(path_of(volume), text, "job", volume, event=EVENT_WAITS)
    if world.facts.jobs_unknown:
        return _cannot_clean(world, volume, world.facts.jobs_unknown)
    return None


def _stop_job(world: World, volume: PersistentVolume, why: str) -> list[Action]:
    """What ends our Job if its volume is not to be cleaned any more; empty without such a Job."""
    job = world.own_job(volume)
    if job is None or job.state != "unfinished":
        return []
    key, text = path_of(volume), f"{why}, but {_at_work(job)}: that Job is removed first"
    hold = Hold(key, text, "job", volume, event=EVENT_WAITS)
    return [hold] if job.being_deleted else [hold, StopJob(key, text, volume, job)]


def _at_work(job: CleaningJob) -> str:
    return f"the Job {job.name} is at work on it"


def _clean(world: World, volume: PersistentVolume, entry: Entry) -> Clean:
    """Clean it; only by our Job if that has begun the cleaning, or ended it well.

    So turning useJobForCleaning on or off never starts a second cleaner beside the first.
    """
    key, job = path_of(volume), world.own_job(volume)
    begun = job is not None and job.state != "failed"
    reason = "its claim is gone and its reclaim policy is Delete"
    if begun and job is not None:
        reason += f"; the Job {job.name} has begun it"
    return Clean(key, reason, volume, entry, by_job=begun or world.facts.use_jobs)


def _known_same(world: World, volume: PersistentVolume) -> Entry | None:
    """The volume's entry if it is readable and is what the object was made for."""
    entry = world.entry_of(volume)
    if entry is None or entry.problem or world.identity(volume, entry).verdict != "same":
        return None
    return entry


def _adoption(
    volume: PersistentVolume, entry: Entry | None, *, complete: bool = False
) -> Adopt | None:
    """Adds the marks of ours that the object lacks, if they can be added now.

    With `complete`, also adds what its recorded identity lacks, if an older release wrote it.
    """
    key, identity = path_of(volume), None
    if entry is not None:
        recorded = recorded_identity(volume)
        if recorded is None:
            identity = entry.identity
        elif complete and knows_more(recorded, entry.identity):
            return Adopt(key, "more is known of it than was recorded", volume, entry.identity)
    if identity is None and is_finalized(volume):
        return None
    return Adopt(key, "an older provisioner made it", volume, identity)


def _record(world: World, volume: PersistentVolume, entry: Entry | None) -> KeepRecord | None:
    """Makes the record that the object lacks if an older release or provisioner made it."""
    if entry is None or generation_of(volume) or entry.recorded == "nowhere":
        return None
    if world.strange(volume, entry):
        return None
    return KeepRecord(path_of(volume), "it has no record yet", volume, entry)


def _is_to_be_marked(volume: PersistentVolume, entry: Entry | None) -> bool:
    """Whether the object or the record does not say yet that the object's claim holds the volume.

    A claim that an older state of the API server brings back may take a volume that no claim holds:
    its pods write to it already. If by the record another claim holds it, it stays that claim's.
    """
    claim = claim_of(volume)
    if volume.metadata.annotations.get(marks.CLAIMED_ANNOTATION) != claim:
        return True
    if entry is None:
        return False
    record = of_object(generation_of(volume), entry.recorded)
    if not isinstance(record, Record):
        return False
    if record.claim == claim:
        return record is not entry.recorded
    return not record.claim or record.claim in claims_of(volume)


def _health(world: World, volume: PersistentVolume, entry: Entry | None) -> Hold | None:
    """What is wrong with a volume that is not to be touched, or None if nothing is."""
    key = path_of(volume)
    if reason := world.vanished(volume):
        return Hold(key, reason, "vanished", volume, entry, EVENT_VANISHED)
    if reason := world.unreadable(volume):
        return Hold(
            key, reason, "unknown", volume, entry, again_seconds=world.facts.paces.look_again
        )
    if world.class_of(volume) is None:
        return Hold(key, "its class is not in the configuration", "no-class", volume)
    if entry is None:
        reason = world.misplaced(volume) or "its volume is not known"
        return Hold(key, reason, "misplaced", volume)
    comparison = world.identity(volume, entry)
    if comparison.verdict == "unknown":
        text = f"it is not known whether it is what was published: {comparison.reason}"
        return Hold(key, text, "unknown", volume, entry, again_seconds=world.facts.paces.look_again)
    if comparison.verdict == "renumbered":
        text = f"it may not be the volume that was published: {comparison.reason}; {THE_SAME}"
        return Hold(key, text, "renumbered", volume, entry, EVENT_REPLACED)
    if comparison.verdict != "same":
        text = f"it is not the volume that was published: {comparison.reason}"
        return Hold(key, text, "replaced", volume, entry, EVENT_REPLACED)
    if strange := world.strange(volume, entry):
        text = f"it may be somebody else's volume now: {strange}; {ITS_OWN}"
        if isinstance(entry.recorded, Unreadable):
            again = world.facts.paces.look_again
            return Hold(key, text, "unknown", volume, entry, EVENT_NOT_ITS_OWN, again)
        return Hold(key, text, "not-its-own", volume, entry, EVENT_NOT_ITS_OWN)
    if differs := world.size_differs(volume, entry):
        return Hold(key, differs, "size", volume, entry, EVENT_SIZE_DIFFERS)
    for other in world.other_offers(volume)[:1]:
        text = f"{other.metadata.name} offers the same data as {path_of(other)}"
        return Hold(key, text, "duplicate", volume, entry, EVENT_DUPLICATE)
    if job := world.other_job(volume):
        return Hold(key, _at_work(job), "job", volume, entry, EVENT_WAITS)
    return None


# --- entries that no PersistentVolume offers ---------------------------------------------------


def not_meant(_world: World, entry: Entry) -> Answer:
    if not entry.excluded:
        return None
    return [Keep(entry.host_path, "the class's namePattern does not match it", entry=entry)]


def not_sayable(_world: World, entry: Entry) -> Answer:
    """The Kubernetes API speaks UTF-8; a file name may be any bytes."""
    try:
        entry.host_path.encode()
    except UnicodeEncodeError:
        text = "its name is not UTF-8: no PersistentVolume can say it; rename it"
        return [_hold_entry(entry, text, "name")]
    return None


def not_usable(world: World, entry: Entry) -> Answer:
    if entry.problem is None:
        return None
    again = world.facts.paces.look_again if entry.problem.code == "unknown" else 0.0
    return [_hold_entry(entry, entry.problem.text, entry.problem.code, again)]


def class_unfit(world: World, entry: Entry) -> Answer:
    if (unfit := world.unfit(entry)) is None:
        return None
    code, text = unfit
    return [_hold_entry(entry, text, code)]


def offered_elsewhere(world: World, entry: Entry) -> Answer:
    elsewhere = world.offered_elsewhere(entry)
    if elsewhere is None:
        return None
    return [_hold_entry(entry, elsewhere, "duplicate", world.facts.paces.look_again)]


def known_under_its_name(world: World, entry: Entry) -> Answer:
    """An object without our label may offer this volume already: then it is adopted."""
    own = marks.node_key(world.facts.node.name)
    for name in world.names_of(entry):
        holder = world.facts.asked.get(name)
        if holder is None or path_of(holder) != entry.host_path:
            continue
        here = is_on_node(holder, world.facts.node.hostname)
        if not here and holder.metadata.labels.get(marks.NODE_LABEL, own) != own:
            # Another node's volume: its agent may give it whatever name and path it likes.
            continue
        if reason := _not_adoptable(world, holder, entry):
            text = f"the PersistentVolume {name} has its name and path, but {reason}"
            return [_hold_entry(entry, text, "name-taken", world.facts.paces.look_again)]
        known = marks.IDENTITY_ANNOTATION in holder.metadata.annotations
        identity = None if known else entry.identity
        return [Adopt(entry.host_path, "an older provisioner made it", holder, identity)]
    return None


def anothers(world: World, entry: Entry) -> Answer:
    """Somebody else's object names what is there: it is theirs, whatever lies in it."""
    if why := world.facts.others.get(entry.host_path):
        return [_hold_entry(entry, why, "duplicate", world.facts.paces.look_again)]
    return None


def job_at_work(world: World, entry: Entry) -> Answer:
    """A Job may be destroying what is there: meanwhile it is neither offered nor cleaned."""
    if job := world.job_on(entry):
        return [_hold_entry(entry, _at_work(job), "job")]
    if unknown := world.facts.jobs_unknown:
        return [_hold_entry(entry, unknown, "unknown")]
    return None


def not_well(world: World, entry: Entry) -> Answer:
    """A volume that has failed already is neither offered nor written to."""
    if not entry.unwell:
        return None
    return [_hold_entry(entry, entry.unwell, "unwell", world.facts.paces.look_again)]


def on_record(world: World, entry: Entry) -> Answer:
    """A claim holds it by its record: it is neither offered nor cleaned first, whatever its class.

    A filesystem without any file shows by itself that nothing of a tenant's is left.
    """
    if entry.content is None or (why := held_by_another(entry)) is None:
        return None
    again = world.facts.paces.look_again
    if isinstance(entry.recorded, Unreadable):
        return [_hold_entry(entry, why, "unknown", again)]
    text = f"{why}: empty it, or have `localvolume forget {entry.host_path}` remove the record"
    return [_hold_entry(entry, text, "recorded", again)]


def held_by_another(entry: Entry) -> str | None:
    """Why, by its record, an entry that no object offers is somebody's, or None."""
    provably_empty = entry.kind == "filesystem" and entry.content == Content("empty")
    if provably_empty and isinstance(entry.recorded, Record):
        return None
    return held_by(entry.recorded)


_HELD = ("holds", "traces", "formatted")


def not_clean(world: World, entry: Entry) -> Answer:
    """Data without a PersistentVolume is somebody's, unless the class says otherwise."""
    content = entry.content
    if content is None:
        return [_hold_entry(entry, "it has not been looked into yet", "unknown", 1.0)]
    config = world.facts.classes[entry.class_name].config
    first_use = config.first_use
    if is_offerable(content, config):
        return None
    name = _free_name(world, entry)
    if name is None:
        return None
    if world.facts.online and name not in world.facts.asked:
        return [Ask(entry.host_path, "it is not empty: does an object offer it?", entry, name)]
    if content.state in (*_HELD, "unfinished") and first_use == "clean":
        if reason := world.pods_unseen(entry) or _no_way_to_clean_first(entry, config):
            text = f"it holds {content.found} and is not cleaned: {reason}"
            return [_hold_entry(entry, text, "not-empty", world.facts.paces.look_again)]
        text = f"it holds {content.found}, and its class says firstUse: clean"
        return [CleanFirst(entry.host_path, text, entry, name)]
    if content.state == "unfinished":
        # Otherwise anybody who writes such a note could decide what is destroyed.
        text = f"it holds {content.found}: wipe it, or let the class say firstUse: clean"
        return [_hold_entry(entry, text, "not-empty", world.facts.paces.look_again)]
    if content.state in _HELD:
        text = f"it holds {content.found}: empty it, or let the class say firstUse: trust"
        return [_hold_entry(entry, text, "not-empty", world.facts.paces.look_again)]
    code = "in-use" if content.state == "busy" else "unknown"
    return [_hold_entry(entry, content.found, code, world.facts.paces.look_again)]


def to_be_offered(world: World, entry: Entry) -> Answer:
    name = _free_name(world, entry)
    if name is None:
        text = "other volumes have both its names"
        return [_hold_entry(entry, text, "name-taken", world.facts.paces.look_again)]
    spare = name not in world.names_of(entry)
    text = "it is ready and not offered yet"
    if spare:
        text += ", and other volumes have both its names"
    return [Publish(entry.host_path, text, entry, name, spare)]


ENTRY_RULES: tuple[Callable[[World, Entry], Answer], ...] = (
    not_meant,
    not_sayable,
    not_usable,
    class_unfit,
    offered_elsewhere,
    known_under_its_name,
    anothers,
    job_at_work,
    not_well,
    on_record,
    not_clean,
    to_be_offered,
)


def _no_way_to_clean_first(entry: Entry, config: ClassConfig) -> str | None:
    """Why the class's way to clean does not fit what no PersistentVolume names, or None.

    If such a cleaning fails, only the device itself can say so. Our methods leave a note on it
    until all is proved; a command may erase whatever it likes first, and be killed.
    """
    if entry.kind != "block":
        return None
    try:
        method = method_for(entry, config.volume_mode, config)
    except MethodInvalid as error:
        return str(error)
    if method.name != "command":
        return None
    return (
        "for firstUse: clean, blockCleanerCommand must be a method of ours, as"
        ' ["localvolume", "zero"]: what another command leaves when it fails may look clean'
    )


def _hold_entry(entry: Entry, reason: str, code: str, again: float = 0.0) -> Hold:
    return Hold(entry.host_path, reason, code, entry=entry, again_seconds=again)


def _free_name(world: World, entry: Entry) -> str | None:
    """Upstream's name, or the longer one if another volume has that. If both are taken, a name that
    nobody else could know, or None without a salt.

    Two entries of one plan may also hash alike: the first one in order gets the short name.
    """
    for name in _possible_names(world, entry):
        holder = world.facts.volumes.get(name) or world.facts.asked.get(name)
        if holder is None and world.reserve(name, entry):
            return name
    return None


def _possible_names(world: World, entry: Entry) -> Iterator[str]:
    yield from world.names_of(entry)
    if salt := world.facts.salt:
        yield spare_volume_name(entry.name, world.facts.node.name, entry.class_name, salt)


def _not_adoptable(world: World, holder: PersistentVolume, entry: Entry) -> str | None:
    """Why an object that has this entry's path and name may not be taken as the entry's own."""
    provisioner = holder.metadata.annotations.get(marks.PROVISIONED_BY_ANNOTATION, "")
    if is_being_deleted(holder):
        return "it is being deleted"
    if holder.spec.storage_class_name != entry.class_name:
        return f"its class is {holder.spec.storage_class_name!r}"
    if not is_on_node(holder, world.facts.node.hostname):
        return "its node affinity does not name this node"
    if not marks.is_provisioned_by_node(provisioner, world.facts.node.name):
        return f"{provisioner or 'no provisioner'} made it, not one of this node"
    comparison = world.identity(holder, entry)
    if comparison.verdict != "same":
        return comparison.reason
    return None
