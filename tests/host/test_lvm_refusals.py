"""What a pool of logical volumes refuses to do, whoever asks."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.lvm.store import LvmStore
from localvolume.backends.lvm.survey import survey
from localvolume.backends.model import BackendFailed, GoesOn, Impossible, NotThisVolume
from localvolume.config.pools import LvmConfig
from localvolume.host.lvm.commands import BadName
from tests.host.support_lvm_told import POOL, Told, at_look, raw, snapshot


def test_a_volume_of_another_claim_is_not_handed_on(thin: Told) -> None:
    store, lvm = thin
    made = store.make(raw())
    with pytest.raises(NotThisVolume, match="another claim"):
        store.make(raw(claim_uid="somebody-elses"))
    assert store.make(raw()) == made
    # Nor one that was removed and holds its data still.
    store.retire(made)
    with pytest.raises(NotThisVolume, match="removed, and is not purged yet"):
        store.make(raw())
    assert "pvc-1" in lvm.rows


def test_what_has_data_before_it_is_made_is_given_to_nobody(thin: Told) -> None:
    """Of a volume of which LVM knew nothing, and whose number it has given out again."""
    store, lvm = thin
    lvm.mapped = "256 16511"
    with pytest.raises(GoesOn, match="was not empty"):
        store.make(raw())
    assert "pvc-1" not in lvm.rows
    lvm.mapped = "0 -"
    assert store.make(raw()).state == "made"
    # What it has from then on is its tenant's.
    lvm.mapped = "256 16511"
    assert store.make(raw()).state == "made"


@pytest.mark.parametrize("mapped", ["Fail", "", "- -"])
def test_what_nobody_can_tell_to_be_empty_is_not_given_either(thin: Told, mapped: str) -> None:
    store, lvm = thin
    lvm.mapped = mapped
    with pytest.raises(BackendFailed, match="has of its pool"):
        store.make(raw())
    assert "pvc-1" in lvm.rows


@pytest.mark.parametrize("state", ["made", "offered"])
def test_only_what_was_removed_is_purged(thin: Told, state: str) -> None:
    store, lvm = thin
    made = store.make(raw())
    if state == "offered":
        made = store.offered(made)
    with pytest.raises(NotThisVolume, match=f"is {state}: nothing of it is purged"):
        store.purge(made, stop=threading.Event())
    assert "pvc-1" in lvm.rows


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "Capital"}, "the volume's name"),
        ({"backend": "image"}, "image volumes are not made"),
        ({"directory": "ns/claim"}, "has no directory"),
        ({"size_bytes": 0}, "at least one byte"),
        ({"option_class": "fast"}, "no options called 'fast'"),
    ],
)
def test_what_can_never_be_made(thin: Told, fields: dict[str, Any], said: str) -> None:
    store, lvm = thin
    with pytest.raises(Impossible, match=said):
        store.make(replace(raw(), **fields))
    assert list(lvm.rows) == [POOL]


def test_a_pool_without_a_group(thin: Told) -> None:
    """A pattern that matches none."""
    store, lvm = thin
    for of in (None, LvmConfig(group="")):
        config = replace(store.config, lvm=of)
        with pytest.raises(Impossible, match="names no volume group"):
            LvmStore(config, lvm)
        assert "no volume group matches" in survey(config, lvm).problem


def test_a_second_thing_with_one_volume(thin: Told) -> None:
    store, lvm = thin
    said: list[str] = []

    def retire() -> None:
        with pytest.raises(BackendFailed) as error:
            store.retire(raw())
        said.append(str(error.value))

    at_look(lvm, 1, retire)
    store.make(raw())
    assert said == ["something else is being done with pvc-1"]


def test_a_pool_that_is_closed_while_it_is_looked_at(thin: Told) -> None:
    store, lvm = thin
    at_look(lvm, 1, store.close)
    report = store.look()
    assert ("closed meanwhile" in report.problem, report.taken) == (True, True)
    assert not store.look().problem


def test_another_group_is_not_even_put_right(thick: Told) -> None:
    """Recovery changes what it finds: first of all the group is proven to be the right one."""
    store, lvm = thick
    store.know({"the-id-of-another"})
    assert "disks are not there, or it was made anew" in store.look().problem
    assert [line.split()[0] for line in lvm.asked] == ["lvmconfig", "fullreport"]


def test_a_report_of_another_group_is_none(thick: Told) -> None:
    store, lvm = thick
    lvm.told_name = "another"
    assert "is not among what LVM reports" in store.look().problem
    assert store.look().records == {}


def test_an_id_that_is_no_name_of_a_lock(thick: Told, tmp_path: Path) -> None:
    store, lvm = thick
    lvm.uuid = "../elsewhere"
    assert "no UUID of LVM's" in store.look().problem
    assert not list(tmp_path.iterdir())


def test_names_that_lvm_knows_no_such_of(thin: Told) -> None:
    store, _ = thin
    origin = store.make(raw())
    with pytest.raises(Impossible) as error:
        store.copy(snapshot(origin, "snapshot-1"), origin)
    assert isinstance(error.value.__cause__, BadName)
