"""The table of `localvolume plan`: what each row is about, and how large that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from localvolume.cli.orphans import shapes
from localvolume.cli.planning import pools
from localvolume.cli.planning.prepared import described
from localvolume.cli.planning.rows import orphan_rows, volume_rows
from localvolume.cli.planning.snapshots import Due, content_rows
from localvolume.cli.rows import print_rows
from localvolume.dynamic.plan.orphans import orphans_of
from localvolume.dynamic.plan.plan import plan as plan_dynamic
from localvolume.dynamic.plan.world import World
from localvolume.kube.objects import PersistentVolume
from localvolume.snapshots import plan as single
from localvolume.snapshots.groups import plan as group_plan
from localvolume.volumes.capacity import GIB
from tests.decisions import support_dynamic, support_plan, support_seeing

Rows = Sequence[Mapping[str, Any]]
Lines = Callable[[Rows], list[str]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    """The lines of the table for rows, each without the spaces that make its columns."""

    def of(rows: Rows) -> list[str]:
        print_rows(rows, "table")
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()[1:]]

    return of


def test_an_entry_is_as_large_as_its_volume_is_or_would_be(lines: Lines) -> None:
    """A filesystem's size is no whole number of anything: a volume's is rounded down."""
    free, used = (support_plan.filesystem(name, size=20 * GIB - 7) for name in "ab")
    (first, second) = lines(
        described(support_plan.facts_of([free, used], [support_plan.bound_to(used)]))
    )
    assert " publish " in first
    assert " keep " in second
    assert " 19Gi " in first
    assert " 19Gi " in second


def test_an_entry_of_which_nothing_could_be_read_has_no_size(lines: Lines) -> None:
    rows = described(support_plan.facts_of([support_plan.broken("unknown")]))
    assert [row.keys() & {"kind", "capacityBytes", "identity"} for row in rows] == [set()]
    assert lines(rows) == ["fast /mnt/disks/disk hold it did not answer"]


@pytest.mark.parametrize(("use_jobs", "verdict"), [(False, "clean"), (True, "clean by a Job")])
def test_a_plan_says_which_cleanings_are_done_by_a_job(*, use_jobs: bool, verdict: str) -> None:
    entry = support_plan.filesystem()
    going = support_plan.released_from(entry, deleting=True)
    rows = described(support_plan.facts_of([entry], [going], use_jobs=use_jobs))
    assert [row["verdict"] for row in rows] == [verdict]


def _without_path(volume: PersistentVolume) -> PersistentVolume:
    """As one of the CSI driver is."""
    return replace(volume, spec=replace(volume.spec, local=None))


def test_what_has_no_path_is_named(lines: Lines) -> None:
    """A logical volume has none, nor has a snapshot's content."""
    stray, begun = support_dynamic.lv(9, volume_uid="volume-9"), support_dynamic.lv(8, "made")
    made = support_dynamic.facts(
        support_dynamic.storage_class(),
        support_dynamic.claim(size="10752Mi"),
        support_dynamic.bound(2),
        support_dynamic.volume(2),
        _without_path(support_dynamic.volume(3)),
        support_dynamic.lvm_pool(stray, begun, support_dynamic.lv(2), support_dynamic.lv(3)),
    )
    orphans = orphans_of(made.pools, made.volumes, made.claims.values())
    of_content = support_seeing.content("a"), support_seeing.group("b")
    due = [
        Due(single.TellLost(content=of_content[0], reason="-"), None, "tell", "it is gone"),
        Due(group_plan.LetGo(content=of_content[1], reason="-"), None, "let go", "it is gone"),
    ]
    shown = lines(
        [
            *pools.pool_rows(made.pools, {"other": "no group matches"}, World(made), ()),
            *volume_rows(made, plan_dynamic(made), {one.name for one in orphans}),
            *orphan_rows(made.pools, orphans),
            *content_rows(due, plan_dynamic(made), "they could not be read"),
        ]
    )
    begins = (
        "pool fast serve ",
        "pool other hold pool other: no group matches",
        "local claim ns/data-1 make pvc-1 10752Mi ",
        "local /pools/fast/pvc-2 keep pvc-2 1Gi ",
        "local volume pvc-3 ",
        "local pool fast: pvc-8 ask 1Gi ",
        "pool fast: pvc-9 orphan pvc-9 1Gi ",
        "snapshot content a tell it is gone",
        "group snapshot content b let go it is gone",
        "hold they could not be read",
    )
    for line, begin in zip(shown, begins, strict=True):
        assert line.startswith(begin)


@pytest.mark.parametrize(
    ("host_dir", "path"), [("/pools/fast", "/pools/fast/pvc-9"), ("", "")], ids=["path", "none"]
)
def test_an_orphan_has_the_path_that_its_pool_has(host_dir: str, path: str) -> None:
    stray = support_dynamic.lv(9, volume_uid="volume-9")
    made = support_dynamic.facts(support_dynamic.lvm_pool(stray, host_dir=host_dir))
    orphans = orphans_of(made.pools, {}, ())
    (row,) = orphan_rows(made.pools, orphans)
    (shape,) = shapes(made.pools, orphans)
    assert row["path"] == shape["path"] == path
    assert row["place"] == shape["place"] == "pvc-9"
