"""What holds for every plan, whatever the facts: no crash, no harm, nothing left out.

The facts are drawn from few names, devices and identities, so that they often collide. What counts
as shared data or as the right place is said here a second time, apart from the code under test.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from localvolume.cleaning.jobs import CleaningJob
from localvolume.kube.objects import PersistentVolume
from localvolume.static.model import (
    Action,
    Adopt,
    Ask,
    ClassFacts,
    Clean,
    CleanFirst,
    Content,
    Entry,
    Facts,
    Hold,
    Keep,
    LetGo,
    MarkClaimed,
    Publish,
    Reclaim,
    Withdraw,
)
from localvolume.static.plan.plan import plan
from localvolume.static.plan.world import World
from localvolume.volumes import marks
from localvolume.volumes.identity import to_annotation
from localvolume.volumes.names import longer_volume_name, volume_name
from localvolume.volumes.objects import ever_claimed, is_on_node, path_of
from tests.decisions.support_plan import (
    ELSEWHERE,
    NODE,
    SIZE,
    block,
    broken,
    class_facts,
    facts_of,
    filesystem,
    job_for,
    volume_of,
)
from tests.suite.chance import examples

HOST_DIRS = {"fast": "/mnt/disks", "slow": "/mnt/disks", "far": "/mnt/far"}
NAMES = ("a", "b", "c", "d\udcff")
DEVICES = ("8:0", "8:1", "8:2")
PHASES = ("", "Pending", "Available", "Bound", "Released", "Released", "Failed")
CONTENTS = (
    Content("empty"),
    Content("holds", "something"),
    Content("formatted", "an empty ext4", "ext4"),
    Content("unfinished", "something"),
    Content("busy", "something"),
    Content("unknown", "something"),
    None,
)
ROOTS = ("/", "/x", "/x/y", "/xy")


@st.composite
def what_lies_there(draw: st.DrawFn) -> Entry:
    """One path's content, without a class and a name yet."""
    kind = draw(st.sampled_from(["filesystem"] * 5 + ["block"] * 2 + ["broken"]))
    if kind == "broken":
        return broken(draw(st.sampled_from(["gone", "wrong-kind", "unknown", "reading"])))
    device = draw(st.sampled_from(DEVICES))
    size = draw(st.sampled_from([SIZE, SIZE, 2 * SIZE]))
    if kind == "block":
        found = block(serial=f"S-{device}", device=device, size=size)
    else:
        root = draw(st.sampled_from(ROOTS))
        found = filesystem(uuid=f"U-{device}", device=device, root=root, size=size)
    return replace(found, content=draw(st.sampled_from(CONTENTS)))


@st.composite
def classes_of_a_node(draw: st.DrawFn) -> list[ClassFacts]:
    seldom = st.sampled_from([False] * 7 + [True])
    return [
        class_facts(
            name,
            host_dir=host_dir,
            first_use=draw(st.sampled_from(["require-empty", "trust", "clean"])),
            mode=draw(st.sampled_from(["Filesystem", "Filesystem", "Block"])),
            fs_type=draw(st.sampled_from(["", "ext4", "xfs"])),
            exists=not draw(seldom),
            policy=draw(st.sampled_from(["Delete", "Delete", "Retain", "Recycle"])),
            problem="input/output error" if draw(seldom) else None,
        )
        for name, host_dir in HOST_DIRS.items()
        if name == "fast" or draw(st.booleans())
    ]


@st.composite
def entries_of(draw: st.DrawFn, classes: list[ClassFacts]) -> list[Entry]:
    """What discovery finds: classes that share a directory see the same there."""
    found: list[Entry] = []
    lying: dict[str, Entry] = {}
    for facts in classes:
        config = facts.config
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
            path = f"{config.host_dir}/{name}"
            if path not in lying:
                lying[path] = draw(what_lies_there())
            entry = replace(
                lying[path],
                class_name=config.name,
                name=name,
                path=f"{config.mount_dir}/{name}",
                host_path=path,
                excluded=draw(st.sampled_from([False] * 5 + [True])),
            )
            found.append(entry)
    return draw(st.permutations(found))


@st.composite
def volumes_about(draw: st.DrawFn, entries: list[Entry], name: str) -> PersistentVolume:
    """An object that is right but for two things at most, in any phase of its life."""
    elsewhere = filesystem("zzz", device="9:9")
    entry = draw(st.sampled_from([*entries, elsewhere])) if entries else elsewhere
    flaws: dict[str, list[Any]] = {
        "path": [
            f"{entry.host_path}/",
            f"{posixpath.dirname(entry.host_path)}//{entry.name}",
            posixpath.dirname(entry.host_path),
            f"{entry.host_path}/..",
            "/mnt/other/a",
        ],
        "class_name": ["far", "removed"],
        "policy": ["Retain", "Recycle", None],
        "finalized": [False],
        "identity": [None, "scribble", "{}", '{"kind":"block"}']
        + [to_annotation(other.identity) for other in entries],
        "mode": ["Block"],
        "hostname": [ELSEWHERE],
        "local": [False],
        "capacity": ["1Gi", "plenty", "1e5000"],
        "annotations": [
            {marks.CLAIMED_ANNOTATION: "claim-uid"},
            {marks.BOUND_BY_CONTROLLER_ANNOTATION: "yes"},
        ],
    }
    chosen = draw(st.lists(st.sampled_from(sorted(flaws)), unique=True, max_size=2))
    return volume_of(
        entry,
        name=name,
        phase=draw(st.sampled_from(PHASES)),
        claim=draw(st.sampled_from(["", "claim-uid"])),
        deleting=draw(st.booleans()),
        **{flaw: draw(st.sampled_from(flaws[flaw])) for flaw in chosen},
    )


@st.composite
def jobs_about(
    draw: st.DrawFn, entries: list[Entry], volumes: list[PersistentVolume]
) -> list[CleaningJob]:
    """Ours and others', for these objects and for older ones, at their paths and elsewhere."""
    if not volumes or draw(st.booleans()):
        return []
    paths = ["", "/elsewhere", *(e.path for e in entries), *(e.host_path for e in entries)]
    return [
        job_for(
            draw(st.sampled_from(volumes)),
            draw(st.sampled_from(["unfinished", "unfinished", "succeeded", "failed"])),
            uid=draw(st.sampled_from([None, None, "an-older-uid"])),
            path=draw(st.sampled_from(paths)),
            upstreams=draw(st.booleans()),
            being_deleted=draw(st.booleans()),
        )
        for _ in range(draw(st.integers(1, 2)))
    ]


@st.composite
def any_facts(draw: st.DrawFn) -> Facts:
    classes = draw(classes_of_a_node())
    entries = draw(entries_of(classes))
    short = [volume_name(e.name, NODE.name, e.class_name) for e in entries]
    longer = [longer_volume_name(e.name, NODE.name, e.class_name) for e in entries]
    known = [*short, *longer, "pv-1", "pv-2", "pv-3", "pv-4"]
    names = draw(st.lists(st.sampled_from(known), unique=True, max_size=4))
    volumes = [draw(volumes_about(entries, name)) for name in names]
    asked: dict[str, PersistentVolume | None] = {}
    for name in {*short, *longer} - set(names):
        match draw(st.sampled_from(["not asked", "absent", "absent", "there"])):
            case "absent":
                asked[name] = None
            case "there":
                asked[name] = draw(volumes_about(entries, name))
    missing = {
        volume.metadata.uid: draw(st.sampled_from([0.0, 59.0, 61.0, 1e9])) for volume in volumes
    }
    return facts_of(
        entries,
        volumes,
        classes=classes,
        asked=asked,
        missing=missing,
        online=draw(st.booleans()),
        jobs=draw(jobs_about(entries, volumes)),
        use_jobs=(use_jobs := draw(st.booleans())),
        jobs_unknown="forbidden" if use_jobs and draw(st.integers(0, 9)) == 0 else None,
    )


# --- said a second time --------------------------------------------------------------------------


def same_path(one: str, other: str) -> bool:
    return posixpath.normpath(one or "/dev/null") == posixpath.normpath(other)


def within(path: str, directory: str) -> bool:
    return posixpath.commonpath([path, directory]) == directory


def share_data(one: Entry, other: Entry) -> bool:
    if one.host_path == other.host_path:
        return True
    if not one.device or one.device != other.device:
        return False
    if "block" in (one.kind, other.kind):
        return True
    return within(one.root, other.root) or within(other.root, one.root)


def begun(actions: Iterable[Action]) -> Iterator[tuple[Publish | CleanFirst, Entry]]:
    """Every entry that this plan would offer, or clean in order to offer it."""
    for action in actions:
        if isinstance(action, Publish | CleanFirst):
            yield action, action.entry


# --- the laws ------------------------------------------------------------------------------------

Law = Callable[[Facts, list[Action]], None]
LAWS: list[Law] = []


def law(holds: Law) -> Law:
    """Asserts what must be true of the plan of any facts."""
    LAWS.append(holds)
    return holds


@law
def every_entry_and_every_volume_gets_an_answer(facts: Facts, actions: list[Action]) -> None:
    told = {id(action.volume) for action in actions if hasattr(action, "volume")}
    assert all(id(volume) in told for volume in facts.volumes.values())
    offered = [path_of(volume) for volume in facts.volumes.values()]
    keys = {action.key for action in actions}
    for entry in facts.entries:
        assert entry.host_path in keys or any(same_path(p, entry.host_path) for p in offered)
    assert all(action.reason for action in actions)
    assert [action.key for action in actions] == sorted(action.key for action in actions)


@law
def the_same_facts_always_call_for_the_same(facts: Facts, actions: list[Action]) -> None:
    assert plan(facts) == actions


@law
def no_volume_is_cleaned_while_there_is_an_obstacle(facts: Facts, actions: list[Action]) -> None:
    for action in actions:
        if not isinstance(action, Clean | Reclaim):
            continue
        volume, entry = action.volume, action.entry
        assert World(facts).obstacle(volume) is None
        config = facts.classes[volume.spec.storage_class_name].config
        assert facts.classes[config.name].problem is None
        assert path_of(volume) == f"{config.host_dir}/{entry.name}" == entry.host_path
        assert entry in facts.entries
        assert entry.problem is None
        assert is_on_node(volume, NODE.hostname)
        assert not (volume.spec.volume_mode == "Block" and entry.kind != "block")
        recorded = volume.metadata.annotations.get(marks.IDENTITY_ANNOTATION)
        assert recorded in (None, to_annotation(entry.identity))
        for other in facts.volumes.values():
            assert other is volume or not same_path(path_of(other), entry.host_path)


@law
def only_what_a_claim_left_under_policy_delete_is_cleaned(
    facts: Facts, actions: list[Action]
) -> None:
    for action in actions:
        if isinstance(action, Clean | Reclaim):
            volume = action.volume
            assert volume.spec.persistent_volume_reclaim_policy == "Delete"
            assert ever_claimed(volume) or volume.status.phase == "Released"
            assert marks.FINALIZER in volume.metadata.finalizers
            assert (volume.metadata.deletion_timestamp is None) == isinstance(action, Reclaim)
            assert isinstance(action, Clean) or volume.status.phase == "Released"


@law
def a_bound_volume_is_only_told_marked_or_adopted(facts: Facts, actions: list[Action]) -> None:
    for action in actions:
        volume = getattr(action, "volume", None)
        if volume is not None and volume.status.phase == "Bound":
            assert isinstance(action, Keep | Hold | Adopt | MarkClaimed), action


@law
def a_retained_volume_never_loses_its_data(facts: Facts, actions: list[Action]) -> None:
    for action in actions:
        volume = getattr(action, "volume", None)
        if volume is None or volume.spec.persistent_volume_reclaim_policy != "Retain":
            continue
        assert not isinstance(action, Clean | Reclaim), action
        if isinstance(action, LetGo):
            assert volume.metadata.deletion_timestamp is not None
        if isinstance(action, Withdraw):
            assert not ever_claimed(volume)


@law
def only_a_volume_that_no_claim_ever_held_is_withdrawn(facts: Facts, actions: list[Action]) -> None:
    for action in actions:
        if isinstance(action, Withdraw):
            assert not ever_claimed(action.volume)
            assert action.volume.status.phase in ("", "Pending", "Available")
            assert action.volume.metadata.deletion_timestamp is None


@law
def only_an_object_that_is_being_deleted_is_let_go(facts: Facts, actions: list[Action]) -> None:
    for action in actions:
        if isinstance(action, LetGo):
            assert action.volume.metadata.deletion_timestamp is not None
            assert marks.FINALIZER in action.volume.metadata.finalizers


@law
def one_place_has_one_thing_done_to_its_data(facts: Facts, actions: list[Action]) -> None:
    touched = Counter(
        posixpath.normpath(action.key)
        for action in actions
        if isinstance(action, Publish | CleanFirst | Clean | Reclaim)
    )
    assert all(count == 1 for count in touched.values()), touched


@law
def what_an_object_offers_is_not_offered_or_cleaned_beside_it(
    facts: Facts, actions: list[Action]
) -> None:
    for _, entry in begun(actions):
        for volume in facts.volumes.values():
            assert not same_path(path_of(volume), entry.host_path)
            for other in facts.entries:
                if other.host_path == path_of(volume) and not other.excluded:
                    assert not share_data(entry, other)
            recorded = volume.metadata.annotations.get(marks.IDENTITY_ANNOTATION)
            assert recorded != to_annotation(entry.identity)


@law
def two_entries_that_share_their_data_are_never_both_offered(
    facts: Facts, actions: list[Action]
) -> None:
    entries = [entry for _, entry in begun(actions)]
    for one, other in combinations(entries, 2):
        assert not share_data(one, other)


@law
def two_volumes_never_get_the_same_name(facts: Facts, actions: list[Action]) -> None:
    names = [action.name for action in actions if isinstance(action, Publish | CleanFirst)]
    assert len(names) == len(set(names))
    for name in names:
        assert name not in facts.volumes
        assert facts.asked.get(name) is None


@law
def what_is_offered_is_empty_or_trusted(facts: Facts, actions: list[Action]) -> None:
    for action, entry in begun(actions):
        config = facts.classes[entry.class_name].config
        assert entry.problem is None
        assert not entry.excluded
        assert facts.classes[entry.class_name].exists
        assert entry.content is not None
        if isinstance(action, CleanFirst):
            assert entry.content.state in ("holds", "formatted", "unfinished")
            assert config.first_use == "clean"
            assert not facts.online or action.name in facts.asked
        elif entry.content.state == "formatted" and config.first_use == "require-empty":
            assert (config.volume_mode, config.fs_type) == ("Filesystem", entry.content.fs_type)
        elif entry.content.state != "empty":
            assert entry.content.state in ("holds", "formatted")
            assert config.first_use == "trust"


@law
def no_entry_of_a_class_that_cannot_be_listed_is_destroyed(
    facts: Facts, actions: list[Action]
) -> None:
    for action in actions:
        if isinstance(action, Clean | Reclaim | Withdraw):
            known = facts.classes.get(action.volume.spec.storage_class_name)
            assert known is None or known.problem is None


@law
def nothing_is_cleaned_or_offered_beside_a_job(facts: Facts, actions: list[Action]) -> None:
    for action in actions:
        if not isinstance(action, Publish | CleanFirst | Clean | Reclaim):
            continue
        assert facts.jobs_unknown is None
        volume = getattr(action, "volume", None)
        for job in facts.jobs:
            if job.state != "unfinished":
                continue
            own = volume is not None and job.ours and job.volume_uid == volume.metadata.uid
            assert own or job.path not in (action.entry.path, action.entry.host_path)
            assert own or volume is None or job.volume_name != volume.metadata.name


@law
def who_began_a_cleaning_ends_it(facts: Facts, actions: list[Action]) -> None:
    for action in actions:
        if isinstance(action, Clean):
            begun = any(
                job.ours and job.volume_uid == action.volume.metadata.uid and job.state != "failed"
                for job in facts.jobs
            )
            assert action.by_job == (begun or facts.use_jobs)


@settings(
    max_examples=examples(500),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
@given(any_facts())
def test_every_law_holds_for_any_facts(facts: Facts) -> None:
    """One test for all of them: drawing the facts takes far longer than looking at them."""
    actions = plan(facts)
    for holds in LAWS:
        holds(facts, actions)


def test_the_drawn_facts_reach_every_kind_of_step() -> None:
    """Otherwise the properties above would say nothing of it."""
    missing: set[type[Action]] = {
        *(Adopt, Ask, Clean, CleanFirst, Hold, Keep, LetGo, MarkClaimed, Publish, Reclaim, Withdraw)
    }

    def all_are_reached(facts: Facts) -> bool:
        missing.difference_update(map(type, plan(facts)))
        return not missing

    without_shrinking = settings(
        max_examples=3000,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    with contextlib.suppress(NoSuchExample):
        find(any_facts(), all_are_reached, settings=without_shrinking)
    assert missing == set()
