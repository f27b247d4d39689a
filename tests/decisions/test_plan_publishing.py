"""Publishing: which entries become PersistentVolumes, and which are held."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from localvolume.config.model import FirstUse, VolumeMode
from localvolume.static.model import Ask, CleanFirst, Entry, Keep, ProblemCode, Publish
from localvolume.static.plan.plan import plan
from localvolume.volumes.names import volume_name
from tests.decisions.support_plan import (
    NODE,
    State,
    a,
    block,
    broken,
    class_facts,
    facts_of,
    filesystem,
    held,
    only_step,
    steps_of,
    volume_of,
)

NAME = volume_name("disk", NODE.name, "fast")


# --- what is published ---------------------------------------------------------------------------


def test_an_empty_mounted_filesystem_is_published_under_upstreams_name() -> None:
    entry = filesystem("mount1", "sc1")
    action = a(Publish, only_step([entry], classes=[class_facts("sc1")]))
    assert action.entry is entry
    assert action.name == "local-pv-aaaafef5"
    assert action.key == "/mnt/disks/mount1", "as the host sees it, not as this process does"


@pytest.mark.parametrize("mode", ["Block", "Filesystem"])
def test_an_empty_block_device_is_published_under_either_mode(
    mode: Literal["Block", "Filesystem"],
) -> None:
    a(Publish, only_step([block()], classes=[class_facts(mode=mode)]))


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_both_supported_reclaim_policies_are_published(policy: str) -> None:
    a(Publish, only_step([filesystem()], classes=[class_facts(policy=policy)]))


def test_an_empty_directory_has_nothing_to_publish() -> None:
    assert steps_of([]) == []


def test_an_entry_found_later_is_published_beside_the_one_that_is_offered() -> None:
    first, later = filesystem("first"), filesystem("later")
    kept, published = steps_of([first, later], [volume_of(first)])
    a(Keep, kept)
    assert a(Publish, published).entry is later


def test_a_second_pass_publishes_nothing_more() -> None:
    entries = [filesystem("one"), block("two")]
    volumes = [volume_of(entry) for entry in entries]
    for action in steps_of(entries, volumes):
        a(Keep, action)


def test_a_path_that_any_object_offers_is_not_offered_again() -> None:
    """Also where that object has another name, another class, or belongs nowhere."""
    entry = filesystem()
    for other in (
        volume_of(entry, name="made-by-hand", phase="Bound", claim="c"),
        volume_of(entry, class_name="unknown-class", phase="Bound", claim="c"),
        volume_of(entry, hostname="another-node"),
        volume_of(entry, phase="Failed"),
        volume_of(entry, phase="Released", claim="c", policy="Retain"),
        volume_of(entry, phase="Released", claim="c", deleting=True),
    ):
        assert not [s for s in steps_of([entry], [other]) if isinstance(s, Publish | CleanFirst)]


@pytest.mark.parametrize("known", [True, False], ids=["identity", "no identity"])
@pytest.mark.parametrize(
    "path", ["/mnt/disks/disk/", "/mnt/disks//disk", "/mnt/disks/./disk", "//mnt/disks/disk"]
)
@pytest.mark.parametrize("first_use", ["require-empty", "trust", "clean"])
def test_a_path_written_in_another_way_is_still_that_path(
    path: str, first_use: FirstUse, known: bool
) -> None:
    """The API server takes all of these, and kubelet mounts them alike."""
    entry = filesystem(content="holds" if first_use == "clean" else "empty")
    identity: dict[str, str] | None = {} if known else None
    other = volume_of(
        entry, name="made-by-hand", path=path, phase="Bound", claim="c", identity=identity
    )
    actions = steps_of(
        [entry],
        [other],
        classes=[class_facts(first_use=first_use)],
        asked={NAME: None},
    )
    assert not [action for action in actions if isinstance(action, Publish | CleanFirst)]


# --- what is held, and harms nobody else ---------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "again_seconds"),
    [("gone", 0.0), ("wrong-kind", 0.0), ("unknown", 30.0), ("reading", 0.0)],
)
def test_an_unusable_entry_is_held_with_its_reason(code: ProblemCode, again_seconds: float) -> None:
    entry = broken(code)
    hold = held(only_step([entry]), code)
    assert entry.problem is not None
    assert hold.reason == entry.problem.text
    assert hold.again_seconds == again_seconds
    assert hold.entry is entry


@pytest.mark.parametrize("bad", ["gone", "wrong-kind", "unknown", "reading"])
def test_the_good_siblings_of_a_bad_entry_are_published(bad: ProblemCode) -> None:
    before, hold, after = steps_of([filesystem("a"), broken(bad, "b"), filesystem("c")])
    a(Publish, before)
    held(hold, bad)
    a(Publish, after)


def test_a_name_that_the_pattern_does_not_mean_is_left_alone_in_silence() -> None:
    action = only_step([filesystem(excluded=True)])
    assert "namePattern" in a(Keep, action).reason


def test_a_directory_under_a_block_class_is_held_and_devices_beside_it_are_published() -> None:
    hold, publish = steps_of(
        [filesystem("a-directory"), block("b-device")], classes=[class_facts(mode="Block")]
    )
    assert "directory" in held(hold, "wrong-kind").reason
    a(Publish, publish)


def test_without_its_storage_class_nothing_is_published() -> None:
    hold = held(only_step([filesystem()], classes=[class_facts(exists=False)]), "no-class")
    assert "'fast'" in hold.reason


@pytest.mark.parametrize("policy", ["Recycle", "", "delete"])
def test_a_class_with_another_reclaim_policy_publishes_nothing(policy: str) -> None:
    hold = held(only_step([filesystem()], classes=[class_facts(policy=policy)]), "policy")
    assert policy in hold.reason


def test_a_class_that_is_unfit_does_not_keep_another_from_publishing() -> None:
    classes = [class_facts("fast", exists=False), class_facts("slow", host_dir="/mnt/slow")]
    hold, publish = steps_of(
        [filesystem("a"), filesystem("b", "slow", host_dir="/mnt/slow")], classes=classes
    )
    held(hold, "no-class")
    a(Publish, publish)


def test_a_class_that_does_not_exist_cleans_nothing_before_first_use_either() -> None:
    classes = [class_facts(exists=False, first_use="clean")]
    held(only_step([filesystem(content="holds")], classes=classes, asked={NAME: None}), "no-class")


def test_a_name_that_the_api_cannot_say_is_held_and_its_siblings_are_published() -> None:
    actions = steps_of([filesystem("disk-\udcff"), filesystem("disk-ä"), filesystem("a\nb c")])
    assert [getattr(action, "code", type(action).__name__) for action in actions] == [
        "Publish",
        "Publish",
        "name",
    ]
    assert "UTF-8" in actions[-1].reason


def test_a_name_that_the_api_cannot_say_is_not_cleaned_either() -> None:
    classes = [class_facts(first_use="clean")]
    entry = filesystem("disk-\udcff", content="holds")
    held(only_step([entry], classes=classes, online=False), "name")


def test_every_step_stands_in_the_order_of_the_paths() -> None:
    entries = [filesystem(name) for name in ("c", "a", "b")]
    assert [action.key for action in steps_of(entries)] == [
        "/mnt/disks/a",
        "/mnt/disks/b",
        "/mnt/disks/c",
    ]


# --- what it holds decides -----------------------------------------------------------------------

Known = Literal["asked", "not asked", "offline"]


def looked_at(content: State | None, first_use: FirstUse, known: Known, entry: Entry) -> str:
    facts = facts_of(
        [entry],
        classes=[class_facts(first_use=first_use)],
        asked={NAME: None} if known == "asked" else {},
        online=known != "offline",
    )
    (action,) = plan(facts)
    return getattr(action, "code", type(action).__name__)


def entry_with(content: State | None, kind: str) -> Entry:
    return block(content=content) if kind == "block" else filesystem(content=content)


@pytest.mark.parametrize("kind", ["filesystem", "block"])
@pytest.mark.parametrize(
    ("content", "first_use", "asked", "not_asked", "offline"),
    [
        # Nothing in it: published at once; a create that meets an older object says so itself.
        ("empty", "require-empty", "Publish", "Publish", "Publish"),
        ("empty", "trust", "Publish", "Publish", "Publish"),
        ("empty", "clean", "Publish", "Publish", "Publish"),
        # Data: somebody's, unless the class says otherwise and no object offers it.
        ("holds", "require-empty", "not-empty", "Ask", "not-empty"),
        ("holds", "trust", "Publish", "Publish", "Publish"),
        ("holds", "clean", "CleanFirst", "Ask", "CleanFirst"),
        # The rest of a cleaning that did not end is never offered; a tenant could have written the
        # note that says so, hence it is not cleaned unasked either.
        ("unfinished", "require-empty", "not-empty", "Ask", "not-empty"),
        ("unfinished", "trust", "not-empty", "Ask", "not-empty"),
        ("unfinished", "clean", "CleanFirst", "Ask", "CleanFirst"),
        # A device that something uses is never offered and never cleaned, whatever the class says.
        ("busy", "require-empty", "in-use", "Ask", "in-use"),
        ("busy", "trust", "in-use", "Ask", "in-use"),
        ("busy", "clean", "in-use", "Ask", "in-use"),
        # Nor what nobody can tell.
        ("unknown", "require-empty", "unknown", "Ask", "unknown"),
        ("unknown", "trust", "unknown", "Ask", "unknown"),
        ("unknown", "clean", "unknown", "Ask", "unknown"),
        # Nor what nobody has looked into.
        (None, "require-empty", "unknown", "unknown", "unknown"),
        (None, "trust", "unknown", "unknown", "unknown"),
        (None, "clean", "unknown", "unknown", "unknown"),
    ],
)
def test_content_and_first_use_decide(
    kind: str,
    content: State | None,
    first_use: FirstUse,
    asked: str,
    not_asked: str,
    offline: str,
) -> None:
    entry = entry_with(content, kind)
    answers = [
        looked_at(content, first_use, known, entry) for known in ("asked", "not asked", "offline")
    ]
    assert answers == [asked, not_asked, offline]


@pytest.mark.parametrize(
    ("first_use", "mode", "fs_type", "wanted"),
    [
        ("require-empty", "Filesystem", "ext4", "Publish"),
        ("require-empty", "Filesystem", "ext2", "not-empty"),
        ("require-empty", "Filesystem", "", "not-empty"),
        # Raw, the filesystem's bytes and all that was deleted in it would be the tenant's to read.
        ("require-empty", "Block", "ext4", "not-empty"),
        ("trust", "Block", "", "Publish"),
        ("trust", "Filesystem", "ext4", "Publish"),
        ("clean", "Filesystem", "ext4", "CleanFirst"),
    ],
)
def test_an_empty_filesystem_is_offered_by_a_class_of_its_type(
    first_use: FirstUse, mode: VolumeMode, fs_type: str, wanted: str
) -> None:
    cls = class_facts(first_use=first_use, mode=mode, fs_type=fs_type)
    facts = facts_of([block(content="formatted")], classes=[cls], asked={NAME: None})
    (action,) = plan(facts)
    assert getattr(action, "code", type(action).__name__) == wanted


def test_a_volume_that_is_not_empty_says_what_was_found_and_what_to_do() -> None:
    hold = held(only_step([filesystem(content="holds")], asked={NAME: None}), "not-empty")
    assert "report.txt" in hold.reason
    assert "firstUse: trust" in hold.reason
    assert hold.again_seconds > 0, "it may be emptied without anybody telling us"


def test_cleaning_before_first_use_says_what_was_found_and_who_asked_for_it() -> None:
    classes = [class_facts(first_use="clean")]
    entry = filesystem(content="holds")
    action = a(CleanFirst, only_step([entry], classes=classes, asked={NAME: None}))
    assert action.entry is entry
    assert action.name == NAME
    assert "report.txt" in action.reason
    assert "firstUse: clean" in action.reason


@pytest.mark.parametrize("content", ["holds", "unfinished"])
@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("/opt/wipe", "-f"), "must be a method of ours"),
        (("/scripts/fsclean.sh",), "this volume is a block device"),
    ],
)
def test_no_command_of_another_is_run_on_a_device_that_no_object_names(
    command: tuple[str, ...], why: str, content: State
) -> None:
    """Only the device can say that such a cleaning failed, and a command may erase that first."""
    facts = class_facts(first_use="clean")
    classes = [replace(facts, config=replace(facts.config, block_cleaner_command=command))]
    hold = held(
        only_step([block(content=content)], classes=classes, asked={NAME: None}), "not-empty"
    )
    assert why in hold.reason
    # Files are deleted by ourselves, whatever the command.
    action = only_step([filesystem(content="holds")], classes=classes, asked={NAME: None})
    assert isinstance(action, CleanFirst)


def test_our_own_methods_clean_a_device_that_no_object_names() -> None:
    facts = class_facts(first_use="clean")
    config = replace(facts.config, block_cleaner_command=("/scripts/dd_zero.sh",))
    action = only_step(
        [block(content="holds")], classes=[replace(facts, config=config)], asked={NAME: None}
    )
    assert isinstance(action, CleanFirst)


def test_before_anything_is_done_to_data_the_api_server_is_asked_by_name() -> None:
    action = a(Ask, only_step([filesystem(content="holds")]))
    assert action.name == NAME


def test_what_is_held_for_its_content_is_looked_at_again() -> None:
    for content in ("holds", "busy", "unknown"):
        entry = filesystem(content=content)
        action = only_step([entry], asked={NAME: None})
        assert getattr(action, "again_seconds", 0.0) > 0
    hold = held(only_step([filesystem(content=None)]), "unknown")
    assert hold.again_seconds == 1.0, "soon: only the look is missing"
