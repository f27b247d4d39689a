"""What is said of a volume's health: the worst first, once, and over only when it stays so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localvolume.health.model import (
    Action,
    Facts,
    Keep,
    Location,
    Memory,
    Over,
    Patience,
    Plan,
    Say,
    Seen,
    Space,
    Thin,
    Trouble,
    Wait,
)
from localvolume.health.plan.plan import judge, plan
from localvolume.kube.objects import ClaimRef, LocalSource, Meta, PersistentVolume, PVSpec, PVStatus
from localvolume.volumes import marks
from tests.suite.units import GIB

PLACE = Location(path="/mnt/disk", kind="mount")
POOLED = Location(path="/pool/one", kind="directory", below="/pool", takes_space=True, pool="fast")
PATIENCE = Patience(gone=10, over=30, again=60)

WELL = Seen()
BROKEN = Seen(errors="its ext4 on sda counts errors")
STOPPED = Seen(stopped="its ext4 takes no writes any more")
GONE = Seen(gone="/mnt/disk is not there")


def volume(
    said: str = "", *, phase: str = "Bound", deleted: bool = False, dynamic: bool = False
) -> PersistentVolume:
    annotations = {marks.HEALTH_ANNOTATION: said} if said else {}
    if dynamic:
        annotations[marks.POOL_ANNOTATION] = "fast/id"
    claim = ClaimRef(namespace="ns", name="claim", uid="claim-uid") if phase == "Bound" else None
    return PersistentVolume(
        metadata=Meta(
            name="pv",
            uid="uid",
            annotations=annotations,
            deletion_timestamp="2026-01-01T00:00:00Z" if deleted else None,
        ),
        spec=PVSpec(local=LocalSource(path="/mnt/disk"), claim_ref=claim),
        status=PVStatus(phase=phase),
    )


def planned(
    one: PersistentVolume,
    seen: Seen | None,
    *,
    memory: Memory | None = None,
    now: float = 1000.0,
    location: Location | None = PLACE,
) -> Plan:
    return plan(
        Facts(
            volumes={"uid": one},
            locations={"uid": location} if location else {},
            seen={"uid": seen} if seen else {},
            memory={"uid": memory} if memory else {},
            now=now,
            patience=PATIENCE,
        )
    )


def only(made: Plan) -> Action:
    (action,) = made.actions
    return action


class TestWhatIsWrong:
    @pytest.mark.parametrize(
        ("seen", "reason"),
        [
            (WELL, None),
            (BROKEN, "IOErrors"),
            (STOPPED, "ReadOnly"),
            (replace(BROKEN, stopped="it takes no writes"), "ReadOnly"),
            (replace(BROKEN, stopped="it takes no writes", gone="it is gone"), "DeviceGone"),
            (Seen(space=Space(total_bytes=GIB, available_bytes=0), errors="x"), "IOErrors"),
        ],
    )
    def test_the_worst_comes_first(self, seen: Seen, reason: str | None) -> None:
        found = judge(PLACE, seen)
        assert (found.reason if found else None) == reason

    def test_a_filesystem_that_stopped_says_why(self) -> None:
        found = judge(PLACE, replace(STOPPED, errors="its ext4 on sda counts errors"))
        assert found is not None
        assert found.text == f"{STOPPED.stopped}: its ext4 on sda counts errors"

    def test_what_may_be_absent_is_not_gone(self) -> None:
        assert judge(replace(PLACE, may_be_absent=True), GONE) is None
        assert judge(replace(PLACE, may_be_absent=True), BROKEN) is not None

    @pytest.mark.parametrize(
        ("available", "inodes", "before", "reason"),
        [
            (GIB, 5, "", None),
            (2 * GIB // 1000, None, "", None),
            (GIB // 1000 - 4096, None, "", "PoolFull"),
            (GIB // 1000 + 4096, None, "", None),
            (GIB // 1000 + 4096, None, "PoolFull", "PoolFull"),
            (GIB // 1000 + 4096, None, "IOErrors", None),
            (3 * GIB // 1000, None, "PoolFull", None),
            (GIB, 0, "", "PoolFull"),
            (GIB, None, "", None),
        ],
    )
    def test_a_full_pool(
        self, available: int, inodes: int | None, before: str, reason: str | None
    ) -> None:
        seen = Seen(space=Space(total_bytes=GIB, available_bytes=available, inodes=inodes))
        found = judge(POOLED, seen, before)
        assert (found.reason if found else None) == reason
        # What has its room already is not harmed.
        assert judge(replace(POOLED, takes_space=False), seen, before) is None

    def test_a_small_pool_is_full_below_a_mebibyte(self) -> None:
        space = Space(total_bytes=16 << 20, available_bytes=(1 << 20) - 1)
        assert judge(POOLED, Seen(space=space)) is not None
        assert judge(POOLED, Seen(space=replace(space, available_bytes=1 << 20))) is None

    @pytest.mark.parametrize(
        ("data", "metadata", "health", "before", "reason"),
        [
            (10.0, 10.0, "", "", None),
            (None, None, "", "", None),
            (79.9, 10.0, "", "", None),
            (80.0, 10.0, "", "", "PoolFilling"),
            (10.0, 85.0, "", "", "PoolFilling"),
            (79.0, 10.0, "", "PoolFilling", "PoolFilling"),
            (77.9, 10.0, "", "PoolFilling", None),
            (100.0, 10.0, "", "", "PoolFull"),
            (10.0, 100.0, "", "", "PoolFull"),
            (98.5, 10.0, "", "PoolFull", "PoolFull"),
            (98.5, 10.0, "", "", "PoolFilling"),
            (90.0, 10.0, "out_of_data", "", "PoolFull"),
            (10.0, 10.0, "metadata_read_only", "", "PoolFull"),
            (10.0, 10.0, "partial", "", "IOErrors"),
            (10.0, 10.0, "refresh needed", "", None),
        ],
    )
    def test_a_thin_pool(
        self,
        data: float | None,
        metadata: float | None,
        health: str,
        before: str,
        reason: str | None,
    ) -> None:
        thin = Thin(name="vg/thin", data_percent=data, metadata_percent=metadata, health=health)
        found = judge(PLACE, Seen(thin=thin), before)
        assert (found.reason if found else None) == reason
        assert found is None or "vg/thin" in found.text

    def test_the_text_holds_still_while_a_pool_fills(self) -> None:
        texts = {
            str(judge(PLACE, Seen(thin=Thin(name="t", data_percent=percent))))
            for percent in (81.0, 85.5, 97.0)
        }
        assert len(texts) == 1


class TestWhatIsSaid:
    def test_trouble_is_said_at_once_and_only_once(self) -> None:
        made = planned(volume(), BROKEN)
        action = only(made)
        assert isinstance(action, Say)
        assert action.aloud
        assert not action.to_claim_only
        assert str(action.trouble) == "IOErrors: its ext4 on sda counts errors"
        assert made.unhealthy == {"uid": "IOErrors"}
        assert made.memory["uid"].written == 1000.0
        # After that, also for an agent that has just begun.
        for memory in (made.memory["uid"], None):
            again = planned(volume(str(action.trouble)), BROKEN, memory=memory, now=1001)
            assert isinstance(only(again), Keep)
            assert again.unhealthy == {"uid": "IOErrors"}

    def test_a_volume_that_is_well_costs_nothing(self) -> None:
        made = planned(volume(), WELL)
        assert isinstance(only(made), Keep)
        assert made.unhealthy == {}

    def test_it_is_over_when_it_stays_so(self) -> None:
        one = volume("IOErrors: x")
        made = planned(one, WELL)
        action = only(made)
        assert isinstance(action, Wait)
        assert action.seconds == 30
        assert made.unhealthy == {"uid": "IOErrors"}
        later = planned(one, WELL, memory=made.memory["uid"], now=1029)
        assert isinstance(only(later), Wait)
        after = planned(one, WELL, memory=later.memory["uid"], now=1030)
        assert isinstance(only(after), Over)
        assert after.unhealthy == {}

    def test_what_comes_and_goes_is_not_written_each_time(self) -> None:
        one, memory, writes = volume(), None, 0
        for second in range(0, 600, 5):
            seen = BROKEN if second % 10 else WELL
            made = planned(one, seen, memory=memory, now=1000.0 + second)
            action, memory = only(made), made.memory["uid"]
            if isinstance(action, Say | Over):
                writes += 1
                one = volume(str(action.trouble) if isinstance(action, Say) else "")
        assert writes == 1

    def test_what_changes_its_reason_all_the_time_is_written_once_a_minute(self) -> None:
        one, memory, writes = volume(), None, 0
        for second in range(0, 600, 5):
            seen = BROKEN if second % 10 else STOPPED
            made = planned(one, seen, memory=memory, now=1000.0 + second)
            action, memory = only(made), made.memory["uid"]
            if isinstance(action, Say):
                writes += 1
                one = volume(str(action.trouble))
        assert 5 <= writes <= 10

    def test_another_text_for_the_same_reason_is_written_without_an_event(self) -> None:
        action = only(planned(volume("IOErrors: before"), BROKEN))
        assert isinstance(action, Say)
        assert not action.aloud
        written = Memory(reason="IOErrors", since=990, written=990)
        assert isinstance(only(planned(volume("IOErrors: before"), BROKEN, memory=written)), Wait)

    def test_what_nobody_can_tell_changes_nothing(self) -> None:
        for seen, location in (
            (Seen(unknown="it does not answer"), PLACE),
            (None, PLACE),
            (WELL, None),
        ):
            for said in ("", "IOErrors: x"):
                memory = Memory(reason="", since=0)
                made = planned(volume(said), seen, location=location, memory=memory)
                assert isinstance(only(made), Keep)
                assert made.unhealthy == ({"uid": "IOErrors"} if said else {})
                assert made.memory == {"uid": memory}
                assert set(made.unknown) == {"uid"}

    def test_an_object_that_is_being_deleted_is_left_alone(self) -> None:
        assert planned(volume(deleted=True), BROKEN).actions == []

    def test_what_somebody_else_wrote_is_put_right(self) -> None:
        for said in ("nonsense", "Nonsense: x"):
            action = only(planned(volume(said), BROKEN))
            assert isinstance(action, Say)
            waits = planned(volume(said), WELL)
            assert isinstance(only(waits), Wait)


class TestGone:
    def test_it_is_said_when_it_stays_so(self) -> None:
        made = planned(volume(dynamic=True), GONE)
        action = only(made)
        assert isinstance(action, Wait)
        assert action.seconds == 10
        assert made.unhealthy == {}
        later = planned(volume(dynamic=True), GONE, memory=made.memory["uid"], now=1010)
        action = only(later)
        assert isinstance(action, Say)
        assert action.trouble == Trouble("DeviceGone", GONE.gone)
        assert not action.to_claim_only
        # In between it was there: the count begins anew.
        back = planned(volume(dynamic=True), WELL, memory=made.memory["uid"], now=1009)
        again = planned(volume(dynamic=True), GONE, memory=back.memory["uid"], now=1010)
        assert isinstance(only(again), Wait)

    def test_what_may_be_absent_is_not_well_again_by_being_gone(self) -> None:
        location, one = replace(PLACE, may_be_absent=True), volume("IOErrors: x")
        memory = None
        for now in (1000.0, 1100.0):
            made = planned(one, GONE, location=location, memory=memory, now=now)
            memory = made.memory["uid"]
            assert isinstance(only(made), Keep)
            assert made.unhealthy == {"uid": "IOErrors"}
            assert GONE.gone in made.unknown["uid"]
        # Nothing was said: it is not mounted yet, and that is nothing to tell of.
        made = planned(volume(), GONE, location=location)
        assert isinstance(only(made), Keep)
        assert (made.unhealthy, made.unknown) == ({}, {})

    def test_of_a_static_one_the_object_has_its_event_already(self) -> None:
        memory = Memory(reason="DeviceGone", since=0)
        action = only(planned(volume(), GONE, memory=memory))
        assert isinstance(action, Say)
        assert action.to_claim_only

    def test_one_that_nobody_ever_had_is_withdrawn_not_told_of(self) -> None:
        memory = Memory(reason="DeviceGone", since=0)
        one = volume(phase="Available")
        assert isinstance(only(planned(one, GONE, memory=memory)), Keep)
        assert isinstance(only(planned(one, BROKEN)), Say)
