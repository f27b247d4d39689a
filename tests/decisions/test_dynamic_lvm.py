"""Pools of logical volumes: which classes they serve, what is made there, told, and warned of."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from localvolume.backends.lvm.record import ZEROED, fields_of, is_begun
from localvolume.backends.lvm.view import report_of, view_of
from localvolume.backends.model import Abilities
from localvolume.config.pools import DYNAMIC_PROVISIONER, LvmConfig, PoolConfig
from localvolume.dynamic.classes.parameters import read_class
from localvolume.dynamic.manifest import persistent_volume
from localvolume.dynamic.metrics import DynamicMetrics
from localvolume.dynamic.model import (
    ClassFacts,
    GiveBack,
    Grow,
    Keep,
    Make,
    Pool,
    TellGrown,
    TellInfeasible,
    Wish,
)
from localvolume.dynamic.patterns import Patterns, unmatched
from localvolume.dynamic.plan.orphans import orphans_of
from localvolume.dynamic.plan.paths import relative_place
from localvolume.dynamic.plan.plan import plan
from localvolume.dynamic.role import Alerts
from localvolume.host.lvm.commands import LogicalVolume, VolumeGroup
from localvolume.host.process.workers import Workers
from localvolume.kube.events import EventRecorder
from localvolume.kube.objects import Meta, StorageClass
from localvolume.kube.standing import AGAIN_SECONDS
from localvolume.volumes.capacity import GIB, MIB
from localvolume.volumes.lvtags import encode
from localvolume.volumes.manifest import PublishingOptions
from tests.decisions.support_dynamic import (
    NODE,
    a,
    action,
    bound,
    claim,
    facts,
    lv,
    lvm_pool,
    planned,
    pool,
    storage_class,
    volume,
)
from tests.suite.clock import Clock
from tests.suite.until import until_async


def parameters(**given: str) -> Wish | list[str]:
    named = {name.replace("__", "topolvm.io/").replace("_", "-"): v for name, v in given.items()}
    found = StorageClass(metadata=Meta(name="c"), provisioner="p", parameters=named)
    return read_class(found, flavor="native")


# --- parameters --------------------------------------------------------------------------------


def test_what_a_class_may_say_of_logical_volumes() -> None:
    assert parameters(onRemoval="discard") == Wish(discard=True)
    assert parameters(onRemoval="overwrite") == Wish(overwrite=True)
    assert parameters(__device_class="ssd", __lvcreate_option_class="near") == Wish(
        device_class="ssd", option_class="near"
    )
    assert parameters(__device_class="") == Wish(device_class="")
    assert parameters() == Wish(device_class=None)
    (problem,) = parameters(__device_clas="x")  # type: ignore[misc]
    assert problem.endswith("did you mean topolvm.io/device-class?")


@pytest.mark.parametrize("flavor", ["local-path", "openebs"])
def test_discarding_is_ours_alone(flavor: Any) -> None:
    meta = Meta(name="c", annotations={})
    found = StorageClass(metadata=meta, provisioner="p", parameters={"onRemoval": "discard"})
    problems = read_class(found, flavor=flavor)
    assert isinstance(problems, list)
    assert "must be delete or overwrite, not 'discard'" in problems[0]


# --- which pool --------------------------------------------------------------------------------


def serves(among: Sequence[Pool], /, **wish: Any) -> set[str]:
    """The pools in which a volume of a class with that wish may be made."""
    found = set()
    for one in among:
        alone = action(claim(), storage_class(**wish), one)
        if isinstance(alone, Make):
            found.add(alone.pool.name)
    return found


def test_a_pattern_is_meant_by_the_name_of_its_pool() -> None:
    pools = [
        lvm_pool(name="data.vg1", of="data", group="vg1"),
        lvm_pool(name="data.vg2", of="data", group="vg2"),
        lvm_pool(name="other", group="x"),
    ]
    assert serves(pools) == {"data.vg1", "data.vg2", "other"}
    assert serves(pools, pools=frozenset({"data"})) == {"data.vg1", "data.vg2"}
    assert serves(pools, pools=frozenset({"data.vg2"})) == {"data.vg2"}
    assert serves(pools, device_class="data") == {"data.vg1", "data.vg2"}


def test_a_device_class_is_the_pool_of_its_name() -> None:
    pools = [
        lvm_pool(name="ssd"),
        lvm_pool(name="hdd", group="x", by_name_only=True),
        pool(name="dirs"),
    ]
    assert serves(pools, device_class="hdd") == {"hdd"}
    assert serves(pools, device_class="") == {"ssd"}
    assert serves(pools) == {"ssd", "dirs"}
    assert serves(pools, pools=frozenset({"hdd"})) == {"hdd"}
    assert serves(pools, device_class="dirs") == set()
    assert serves(pools, device_class="none") == set()
    assert serves(pools, device_class="", pools=frozenset({"hdd"})) == set()


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ({"discard": True}, "onRemoval discard needs the backend lvm"),
        ({"fs_type": "xfs"}, "fsType xfs needs the backend image or lvm"),
        ({"option_class": "near"}, "there is no lvcreate-option-class near"),
    ],
)
def test_a_directory_is_not_what_such_classes_want(wish: dict[str, Any], reason: str) -> None:
    assert reason in a(GiveBack, action(claim(), storage_class(**wish), pool())).reason
    given = lvm_pool(option_classes=(("near", ()),))
    made = a(Make, action(claim(), storage_class(**wish), given)).record
    assert (made.discard, made.fs_type, made.option_class) == (
        wish.get("discard", False), wish.get("fs_type", ""), wish.get("option_class", ""),
    )  # fmt: skip


def test_an_option_class_that_is_not_there_is_told() -> None:
    answer = action(claim(), storage_class(option_class="far"), lvm_pool())
    assert "there is no lvcreate-option-class far" in a(GiveBack, answer).reason


@pytest.mark.parametrize("mode", ["Filesystem", "Block"])
def test_both_modes_by_what_the_pool_can(mode: str) -> None:
    made = a(Make, action(claim(mode=mode), lvm_pool())).record
    assert (made.volume_mode, made.backend, made.directory, made.enforced) == (
        mode, "lvm", "", True,
    )  # fmt: skip
    cannot = Abilities(enforce=True, block=mode != "Block", filesystem=mode == "Block")
    a(GiveBack, action(claim(mode=mode), lvm_pool(abilities=cannot)))


def test_a_class_that_enforces_nothing_has_its_size_all_the_same() -> None:
    wish = storage_class(enforce=False, directory="{{ .PVC.Namespace }}/{{ .PVC.Name }}")
    made = a(Make, action(claim(), wish, lvm_pool())).record
    assert (made.enforced, made.directory) == (True, "")


def test_the_largest_pool_is_what_is_published() -> None:
    pools = [
        lvm_pool(name="data.vg1", of="data", group="vg1", room=3 * GIB),
        lvm_pool(name="data.vg2", of="data", group="vg2", room=2 * GIB),
    ]
    assert set(plan(facts(*pools)).capacity["local"]) == {3 * GIB, 2 * GIB}
    hidden = [*pools, lvm_pool(name="hdd", group="x", room=9 * GIB, by_name_only=True)]
    assert set(plan(facts(*hidden)).capacity["local"]) == {3 * GIB, 2 * GIB}


def test_no_path_lies_in_a_pool_without_directories() -> None:
    """ "" would be the beginning of every path."""
    said = relative_place(volume(pool=None, path="/etc/shadow"), [lvm_pool().config])
    assert isinstance(said, str)
    assert "lies in no pool" in said


# --- the object --------------------------------------------------------------------------------


def local(made: Any, class_facts: ClassFacts | None = None) -> dict[str, Any]:
    here = lvm_pool()
    body = persistent_volume(
        made,
        claim=claim(),
        class_facts=class_facts or storage_class(),
        pool=here.config,
        pool_id="u-u-id",
        host_path="/dev/vg/pvc-1",
        source="local",
        node=NODE,
        options=PublishingOptions(),
    )
    spec: dict[str, Any] = body["spec"]
    assert body["metadata"]["annotations"]["localvolume.dev/pool"] == "fast/u-u-id"
    return {"capacity": spec["capacity"]["storage"], **spec["local"]}


def test_the_object_names_the_device_and_the_size_that_it_has() -> None:
    assert local(lv(size_bytes=104 * MIB)) == {
        "capacity": "104Mi", "path": "/dev/vg/pvc-1", "fsType": "ext4",
    }  # fmt: skip
    assert local(lv(fs_type="xfs"))["fsType"] == "xfs"
    assert "fsType" not in local(lv(volume_mode="Block"))


# --- sizes that are rounded up -----------------------------------------------------------------

ASKED = str(100 * MIB + 1)
ROUNDED = lv(size_bytes=104 * MIB)


def test_more_than_was_asked_for_is_all_right() -> None:
    there = (volume(size="104Mi"), lvm_pool(ROUNDED))
    a(Keep, action(bound(size=ASKED, has="104Mi"), *there))
    a(Keep, action(bound(size="103Mi", has="104Mi"), *there))


def test_room_is_counted_in_extents() -> None:
    """Two that ask for a byte more than 100Mi take 104Mi each."""
    two = [claim(number, size=ASKED) for number in (1, 2)]
    actions = planned(*two, lvm_pool(room=204 * MIB))
    assert [type(one) for one in actions.values()] == [Make, GiveBack]
    actions = planned(*two, lvm_pool(room=208 * MIB))
    assert [type(one) for one in actions.values()] == [Make, Make]
    begun = lv(state="making", size_bytes=100 * MIB + 1)
    under_way = {"promised": [("fast", begun)], "busy": {"pvc-1"}}
    a(GiveBack, action(two[1], lvm_pool(room=204 * MIB), name="pvc-2", **under_way))
    grows = (bound(size=ASKED), volume(size="100Mi"), lvm_pool(lv(size_bytes=100 * MIB), room=1))
    assert "4Mi needed" in a(TellInfeasible, action(*grows)).reason


def test_what_was_begun_goes_on_by_the_size_that_is_reported() -> None:
    """Zeroing takes more than one call, and what was asked for is no whole extent: were it not
    known again, it would be made anew each time, for ever."""
    made = a(Make, action(claim(size=ASKED, mode="Block"), lvm_pool()))
    half = LogicalVolume(
        name="pvc-1",
        uuid="u",
        group="vg-fast",
        kind="thick",
        size_bytes=104 * MIB,
        tags=encode({**fields_of(made.record), ZEROED: str(40 * MIB)}),
    )
    group = VolumeGroup(name="vg-fast", uuid="v", size_bytes=GIB, free_bytes=GIB, extent_bytes=MIB)
    seen = view_of(LvmConfig(group="vg-fast"), group, [half])
    report = report_of("fast", seen, abilities=Abilities(enforce=True, block=True))
    found = Pool(config=lvm_pool().config, report=report)
    again = a(Make, action(claim(size=ASKED, mode="Block"), found))
    assert (again.fresh, again.record.size_bytes) == (False, 104 * MIB)
    assert is_begun(seen.entries["pvc-1"], again.record)


def test_growing_asks_for_what_the_claim_asks_for() -> None:
    there = (volume(size="104Mi"), lvm_pool(ROUNDED, room=GIB))
    grow = a(Grow, action(bound(size=str(200 * MIB + 1), has="104Mi"), *there))
    assert grow.size_bytes == 200 * MIB + 1


def test_what_it_has_is_told_and_not_what_was_asked_for() -> None:
    """A crash after growing: the next plan tells the size on record, and the one after is quiet."""
    asked = str(200 * MIB + 1)
    grown = lvm_pool(lv(size_bytes=204 * MIB), room=0)
    tell = a(TellGrown, action(bound(size=asked, has="104Mi"), volume(size="104Mi"), grown))
    assert tell.size_bytes == 204 * MIB
    tell = a(TellGrown, action(bound(size=asked, has="104Mi"), volume(size="204Mi"), grown))
    assert tell.size_bytes == 204 * MIB
    a(Keep, action(bound(size=asked, has="204Mi"), volume(size="204Mi"), grown))


# --- what is told of pools ---------------------------------------------------------------------


def warned(*warnings: str, problem: str = "", name: str = "fast") -> Pool:
    found = lvm_pool(name=name, problem=problem)
    object.__setattr__(found.report, "warnings", list(warnings))
    return found


class Said(EventRecorder):
    """Keeps what is said instead of sending it."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, str]] = []

    def event(self, about: Any, type_: str, reason: str, message: str) -> None:
        self.said.append((f"{about.kind} {about.name}", reason, message))


async def test_a_warning_is_said_once_for_each_change() -> None:
    events = Said()
    alerts = Alerts(events, "node-1")
    full, meta = "its data is more than 80% full", "its metadata is more than 80% full"
    for look, said in (
        ([], 0),
        ([warned(full)], 1),
        ([warned(full)], 0),
        ([warned(full, meta)], 1),
        # Nothing is known of it meanwhile.
        ([warned(problem="gone")], 0),
        ([warned(meta, full)], 0),
        ([warned(meta)], 0),
        ([warned(meta, full)], 1),
        ([warned(meta, full), warned(full, name="slow")], 1),
        ([], 0),
        ([warned(full)], 1),
    ):
        before = len(events.said)
        alerts.tell(look)
        assert len(events.said) - before == said, look
    assert events.said[0] == ("Node node-1", "PoolWarning", f"pool fast: {full}")


async def test_a_warning_and_a_problem_that_are_over_are_said_to_be() -> None:
    events = Said()
    alerts = Alerts(events, "node-1")
    alerts.tell([warned("full")])
    alerts.tell([warned(problem="gone")])
    alerts.tell_problems({"fast": "gone", "slow": "gone"})
    alerts.tell_problems({"slow": "gone"})
    alerts.tell([warned()])
    assert [(reason, text.partition(":")[0]) for _, reason, text in events.said] == [
        ("PoolWarning", "pool fast"),
        ("PoolProblem", "pool fast"),
        ("PoolProblem", "pool slow"),
        ("PoolProblemOver", "pool fast"),
        ("PoolWarningOver", "pool fast"),
    ]


async def test_both_are_said_again_each_hour_while_there_is_such_a_pool() -> None:
    clock, events = Clock(), Said()
    alerts = Alerts(events, "node-1")
    alerts.tell([warned("full"), warned("full", name="slow")])
    alerts.tell_problems({"gone": "not there"})
    # Nobody has it any more.
    alerts.tell([warned("full")])
    events.said.clear()
    clock.move_on(AGAIN_SECONDS)
    await until_async(lambda: len(events.said) == 2)
    assert {text for _, _, text in events.said} == {"pool fast: full", "pool gone: not there"}


def test_how_full_a_thin_pool_is_is_measured() -> None:
    registry = CollectorRegistry()
    metrics = DynamicMetrics(registry)
    thin = warned("x", "y")
    for key, value in {"data_percent": 81.5, "metadata_percent": 12.25}.items():
        object.__setattr__(thin.report, key, value)

    def measured(kind: str, name: str = "fast") -> float | None:
        return registry.get_sample_value(f"localvolume_pool_{kind}", {"pool": name})

    metrics.tell([thin, lvm_pool(name="thick")], [], [])
    assert measured("data_percent") == 81.5
    assert measured("metadata_percent") == 12.25
    assert measured("warnings") == 2
    assert measured("data_percent", "thick") is None
    assert measured("warnings", "thick") == 0
    metrics.tell([warned(problem="gone")], [], [])
    assert measured("data_percent") is None


def test_an_orphan_is_named_as_its_logical_volume() -> None:
    (orphan,) = orphans_of([lvm_pool(lv())], {}, ())
    assert (orphan.pool, orphan.place, orphan.size_bytes) == ("fast", "pvc-1", GIB)


# --- patterns ----------------------------------------------------------------------------------


def test_a_class_is_told_that_no_group_matches() -> None:
    pattern = pattern_pool()
    classes = pattern_pool("other", classes=("slow",))
    matched = PoolConfig(
        name="fast.vg1", host_dir="", mount_dir="", provisioner="p", backend="lvm", of="fast"
    )
    told = unmatched([pattern, classes], [], {})
    text = "no volume group matches 'vg.*' of pool"
    assert told == {
        DYNAMIC_PROVISIONER: {"": f"{text} fast", "slow": f"{text} other"},
    }
    assert unmatched([pattern], [matched], {}) == {}
    assert unmatched([pattern], [], {"fast": "no LVM"}) == {
        DYNAMIC_PROVISIONER: {"": "pool fast: no LVM"}
    }
    tagged = pattern_pool(lvm=LvmConfig(pattern="vg.*", tag="mine"))
    assert unmatched([tagged], [], {}) == {
        DYNAMIC_PROVISIONER: {
            "": "no volume group matches 'vg.*' of pool fast and has the tag mine",
        }
    }
    refused = action(claim(), pools=[], refusals=told)
    assert "no volume group matches" in a(GiveBack, refused).reason


def pattern_pool(name: str = "fast", **changes: Any) -> PoolConfig:
    fields: dict[str, Any] = {
        "name": name,
        "host_dir": "",
        "mount_dir": "",
        "provisioner": DYNAMIC_PROVISIONER,
        "backend": "lvm",
        "lvm": LvmConfig(pattern="vg.*", command_prefix=changes.pop("prefix", ())),
    }
    return PoolConfig(**(fields | changes))


GROUPS = """#!/bin/sh
# What vgs reports of the groups in $0.groups; fails where there is no such file.
cat "$0.groups" >/dev/null || exit 5
printf '{"report": [{"vg": ['
comma=
for name in $(cat "$0.groups"); do
    printf '%s{"vg_name": "%s", "vg_uuid": "u", "vg_size": "1", "vg_free": "1",' "$comma" "$name"
    printf '"vg_extent_size": "1", "vg_missing_pv_count": "0"}'
    comma=,
done
printf ']}]}'
"""


def test_patterns_follow_what_lvm_says_and_keep_what_it_said(tmp_path: Path) -> None:
    program = tmp_path / "lvm"
    program.write_text(GROUPS)
    program.chmod(0o755)
    groups = tmp_path / "lvm.groups"
    config = pattern_pool(prefix=(str(program),))

    async def look(patterns: Patterns, *volumes: Any) -> list[str]:
        return [one.name for one in await patterns.expand([config], list(volumes))]

    async def looks() -> None:
        workers = Workers(2)
        patterns = Patterns(workers)
        try:
            # Never asked with success: only what volumes name is a pool.
            assert await look(patterns) == []
            assert "LVM does not list its volume groups" in patterns.problems["fast"]
            assert await look(patterns, volume(pool="fast.vg7/id")) == ["fast.vg7"]
            groups.write_text("vg1 other vg2")
            assert await look(patterns) == ["fast.vg1", "fast.vg2"]
            assert patterns.problems == {}
            os.unlink(groups)
            assert await look(patterns) == ["fast.vg1", "fast.vg2"]
            assert patterns.problems.keys() == {"fast"}
            # A group that is gone stays as long as a volume is in it.
            groups.write_text("vg2")
            kept = volume(pool="fast.vg1/id")
            others = (volume(2, pool="slow.vg3/id"), volume(3, pool="fast.../id"))
            assert await look(patterns, kept, *others) == ["fast.vg1", "fast.vg2"]
            assert await look(patterns) == ["fast.vg2"]
        finally:
            workers.close()

    asyncio.run(looks())


def test_without_patterns_lvm_is_not_asked() -> None:
    async def look() -> None:
        workers = Workers(1)
        configs = [lvm_pool().config, pool().config]
        assert await Patterns(workers).expand(configs, []) == tuple(configs)
        assert workers.calls_total == 0

    asyncio.run(look())
