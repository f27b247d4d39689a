"""Which FlexVolume volumes are removed when their PersistentVolume is gone, and which are not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.flexvolume.driver import Owned
from localvolume.flexvolume.drivers.lvm.marks import fields_of, is_unmarked, owned_of, unmarked_of
from localvolume.flexvolume.paces import FlexPaces
from localvolume.flexvolume.plan.binding import why_not
from localvolume.flexvolume.plan.collect import (
    Action,
    Answer,
    Facts,
    ForgetGone,
    Gone,
    Keep,
    NoteGone,
    Remove,
    There,
    Unknown,
    judge,
)
from localvolume.host.lvm.commands import LogicalVolume
from localvolume.kube.objects import (
    ClaimRef,
    FlexVolumeSource,
    LocalSource,
    Meta,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PVSpec,
    VolumeNodeAffinity,
)
from localvolume.volumes import marks
from localvolume.volumes.lvtags import encode
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.moments import written

NOW = 1_800_000_000.0
GRACE = 600.0
WATCHED_SECONDS = FlexPaces().watched
LONG = Gone(watched_seconds=GRACE, noted_here=True)
TAGS = {
    "pv-uid": "uid-1",
    "claim": "ns/claim",
    "policy": "Delete",
    "state": "made",
    "ended": "uid-1",
    "gone-since": written(NOW - GRACE),
}


def owned(**changes: str) -> Owned:
    tags = {**TAGS, **{key.replace("_", "-"): value for key, value in changes.items()}}
    return Owned(
        name="pvc-1",
        size_bytes=1 << 30,
        tags={key: value for key, value in tags.items() if value},
        id="lv-uuid",
    )


def judged(
    volume: Owned, answer: Answer | None = LONG, *, in_use: bool = False, now: float = NOW
) -> Action:
    (action,) = judge(
        Facts(
            volumes=[volume],
            answers={} if answer is None else {volume.name: answer},
            in_use={volume.name} if in_use else frozenset(),
            now=now,
            grace_seconds=GRACE,
            watched_seconds=WATCHED_SECONDS,
        )
    )
    return action


# --- what is removed ---------------------------------------------------------------------------


def test_what_is_certainly_gone_for_the_grace_period_is_removed() -> None:
    action = judged(owned())
    assert isinstance(action, Remove)
    assert action.volume == owned()
    assert "is gone since" in action.reason


@pytest.mark.parametrize("ended", ["", "another-uid"])
def test_what_went_unseen_is_kept_for_people(ended: str) -> None:
    """A cluster that was set up anew, or restored, has none of the objects of before."""
    action = judged(owned(ended=ended))
    assert isinstance(action, Keep)
    assert "never saw it being deleted" in action.reason
    assert "localvolume.dev/ended=uid-1" in action.reason
    # Nobody ever had one whose making did not end.
    assert isinstance(judged(owned(ended=ended, state="making")), Remove)


def test_nobody_removes_at_first_sight() -> None:
    """elastic's daemon removed at each start whatever it found without a PersistentVolume.

    E-FV-52.
    """
    action = judged(owned(gone_since=""))
    assert isinstance(action, NoteGone)
    assert action.since == written(NOW)


# --- what is kept: each of these is one guard, and one volume that somebody lost ---------------


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(Unknown("503"), "not known: 503", id="an-error-of-the-API"),
        pytest.param(Unknown("forbidden (403)"), "not known: forbidden", id="a-403"),
        pytest.param(None, "nobody has asked", id="not-asked"),
    ],
)
def test_what_nobody_can_tell_is_kept(answer: Answer | None, reason: str) -> None:
    action = judged(owned(), answer)
    assert isinstance(action, Keep)
    assert reason in action.reason


@pytest.mark.parametrize("uid", ["uid-1", "another-uid", ""])
def test_a_volume_with_a_persistentvolume_of_its_name_is_kept(uid: str) -> None:
    """Also when that is another object of the name, and when its labels are lost (elastic).

    E-FV-52, W-03.
    """
    assert isinstance(judged(owned(), There(uid)), ForgetGone)
    assert isinstance(judged(owned(gone_since="", ended=""), There(uid)), Keep)


@pytest.mark.parametrize("uid", ["uid-1", "another-uid"])
@pytest.mark.parametrize(
    ("noted", "ending", "forgotten"),
    [
        pytest.param({}, False, ("gone-since", "ended"), id="undone"),
        pytest.param({"gone_since": ""}, False, ("ended",), id="undone-at-once"),
        pytest.param({"ended": ""}, False, ("gone-since",), id="went-unseen"),
        pytest.param({}, True, ("gone-since",), id="ends-again"),
        pytest.param({"gone_since": ""}, True, (), id="ends"),
    ],
)
def test_a_volume_that_is_there_has_no_end_on_record(
    uid: str, noted: dict[str, str], ending: bool, forgotten: tuple[str, ...]
) -> None:
    """After a restore of the API server's data, or of the object by its name."""
    action = judged(owned(**noted), There(uid, ending))
    assert (action.notes if isinstance(action, ForgetGone) else ()) == forgotten


@pytest.mark.parametrize("policy", ["Retain", "Recycle", "", "delete"])
def test_any_other_policy_keeps_the_data(policy: str) -> None:
    """W-04: elastic's driver never looked at the policy."""
    action = judged(owned(policy=policy))
    assert isinstance(action, Keep)
    assert not action.waiting
    assert "policy" in action.reason


def test_a_volume_of_nobody_knows_which_object_is_kept() -> None:
    assert isinstance(judged(owned(pv_uid="")), Keep)


def test_a_way_of_removing_that_nobody_knows_keeps_it() -> None:
    assert isinstance(judged(owned(on_removal="shred")), Keep)
    for way in ("delete", "overwrite", "discard"):
        assert isinstance(judged(owned(on_removal=way)), Remove)


def test_what_is_in_use_is_kept_until_it_is_not() -> None:
    action = judged(owned(), in_use=True)
    assert isinstance(action, Keep)
    assert action.waiting


@pytest.mark.parametrize("left", [1, 60, GRACE])
def test_the_grace_period_is_waited_for(left: float) -> None:
    """W-37: Azure's clean-up of orphans has none."""
    action = judged(owned(gone_since=written(NOW - GRACE + left)))
    assert isinstance(action, Keep)
    assert action.waiting


def test_a_clock_that_jumped_back_begins_the_grace_period_anew() -> None:
    action = judged(owned(gone_since=written(NOW + 3600)))
    assert isinstance(action, NoteGone)
    assert action.since == written(NOW)


@pytest.mark.parametrize("seconds", [0.0, GRACE - 1])
def test_a_clock_that_jumped_forward_removes_nothing_early(seconds: float) -> None:
    """What this process has noted waits for the whole period by a clock that nobody sets."""
    noted = owned(gone_since=written(NOW - 10 * GRACE))
    assert isinstance(judged(noted, Gone(seconds, noted_here=True)), Keep)


def test_what_an_earlier_process_noted_is_watched_for_a_while() -> None:
    assert isinstance(judged(owned(), Gone(WATCHED_SECONDS - 1)), Keep)
    assert isinstance(judged(owned(), Gone(WATCHED_SECONDS)), Remove)


@pytest.mark.parametrize("text", ["yesterday", "2026-01-01", "1800000000"])
def test_a_note_that_cannot_be_read_is_written_anew(text: str) -> None:
    assert isinstance(judged(owned(gone_since=text)), NoteGone)


@given(
    answer=st.one_of(
        st.builds(Gone, st.floats(0, 2 * GRACE), st.booleans()),
        st.builds(There, st.sampled_from(["uid-1", "x", ""])),
        st.builds(Unknown, st.just("?")),
        st.none(),
    ),
    policy=st.sampled_from(["Delete", "Retain", ""]),
    uid=st.sampled_from(["uid-1", ""]),
    ended=st.sampled_from(["uid-1", "uid-2", ""]),
    state=st.sampled_from(["made", "making", ""]),
    since=st.floats(NOW - 3 * GRACE, NOW + 3 * GRACE),
    way=st.sampled_from(["", "delete", "overwrite", "discard", "?"]),
    in_use=st.booleans(),
)
def test_removal_takes_all_of_the_proofs(
    answer: Answer | None,
    policy: str,
    uid: str,
    ended: str,
    state: str,
    since: float,
    way: str,
    in_use: bool,
) -> None:
    noted = owned(
        policy=policy,
        pv_uid=uid,
        ended=ended,
        state=state,
        gone_since=written(since),
        on_removal=way,
    )
    action = judged(noted, answer, in_use=in_use)
    proofs = (
        isinstance(answer, Gone)
        and answer.watched_seconds >= (GRACE if answer.noted_here else WATCHED_SECONDS)
        and policy == "Delete"
        and bool(uid)
        and (ended == uid or state == "making")
        and NOW - int(since) >= GRACE
        and way != "?"
        and not in_use
    )
    assert isinstance(action, Remove) == proofs


# --- which logical volumes are ours at all -----------------------------------------------------


def lv(name: str = "pvc-1", tags: dict[str, str] | None = None, **fields: Any) -> LogicalVolume:
    return LogicalVolume(
        **{
            "name": name,
            "uuid": f"uuid-of-{name}",
            "group": "vg",
            "size_bytes": 1 << 30,
            "kind": "thick",
            "tags": encode(tags or {}),
            **fields,
        }
    )


OURS = {**TAGS, "owner": "flexvolume"}


def test_listvolumes_returns_what_carries_our_mark() -> None:
    assert owned_of([lv(tags=OURS)]) == [
        Owned(name="pvc-1", size_bytes=1 << 30, tags=TAGS, id="uuid-of-pvc-1")
    ]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lv("foreign"), id="a-foreign-volume"),
        pytest.param(lv("pvc-2", tags={**OURS, "owner": "pool"}), id="of-a-pool"),
        pytest.param(lv("pvc-2", tags=TAGS), id="without-an-owner"),
        pytest.param(lv("tp", tags=OURS, kind="pool"), id="a-thin-pool"),
        pytest.param(lv("shot", tags=OURS, kind="snapshot", origin="pvc-1"), id="a-snapshot"),
        pytest.param(
            dataclasses.replace(lv(tags=OURS), tags=encode(OURS) | encode({"owner": "pool"})),
            id="of-two-owners",
        ),
    ],
)
def test_listvolumes_returns_nothing_else(other: LogicalVolume) -> None:
    """W-01: elastic's returned the whole group, thin pool and all, and its start removed them."""
    assert owned_of([other]) == []


def test_an_inactive_volume_is_listed_as_any() -> None:
    """W-31: OpenEBS took what has no device for deleted, Azure for corrupted."""
    assert [one.name for one in owned_of([lv(tags=OURS, active=False, device="")])] == ["pvc-1"]


def test_what_may_be_elastics_is_plain_and_unmarked() -> None:
    others = [
        lv("tp", kind="pool"),
        lv("shot", kind="snapshot", origin="x"),
        lv("clone", kind="thin", pool="tp", origin="x"),
        lv("mirror", kind="other"),
        lv("pvc-2", tags=OURS),
        lv("pvc-3", tags={**OURS, "owner": "pool"}),
        lv("pvc-4", tags={"state": "made"}),
    ]
    thick, thin = lv("pvc-5"), lv("pvc-6", kind="thin", pool="tp")
    tagged = dataclasses.replace(lv("pvc-7"), tags=frozenset({"backup"}))
    assert unmarked_of([*others, thick, thin, tagged]) == ["pvc-5", "pvc-6", "pvc-7"]
    assert not any(is_unmarked(one) for one in others)


def test_tags_say_that_it_is_flexvolumes() -> None:
    assert encode(fields_of(TAGS)) >= {"localvolume.dev/owner=flexvolume"}
    assert fields_of({**TAGS, "owner": "pool"}) == fields_of(TAGS)


# --- which unmarked ones are adopted -----------------------------------------------------------

NODE = NodeFacts("node-1", "n-uid", "host-1", {marks.HOSTNAME_LABEL: "host-1"})


def bound(*hosts: str, labels: dict[str, str] | None = None, **spec: Any) -> PersistentVolume:
    one = NodeSelectorRequirement(key=marks.HOSTNAME_LABEL, operator="In", values=hosts)
    terms = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(one,)),))
    told = {
        "flex_volume": FlexVolumeSource(driver=marks.ELASTIC_FLEX_DRIVER),
        "claim_ref": ClaimRef(namespace="ns", name="claim", uid="c-1"),
        "node_affinity": VolumeNodeAffinity(required=terms) if hosts else None,
        **spec,
    }
    return PersistentVolume(
        metadata=Meta(name="pvc-1", uid="uid-1", labels=labels or {}), spec=PVSpec(**told)
    )


def test_a_volume_bound_to_this_node_is_adopted() -> None:
    assert why_not(bound("host-1"), marks.FLEX_DRIVERS, NODE) == ""
    labels = {marks.ELASTIC_NODE_LABEL: "node-1"}
    assert why_not(bound("host-1", labels=labels), marks.FLEX_DRIVERS, NODE) == ""


@pytest.mark.parametrize(
    ("live", "reason"),
    [
        pytest.param(bound(), "no node", id="never-mounted"),
        pytest.param(bound("host-2"), "another node", id="another-node"),
        pytest.param(
            bound("host-1", flex_volume=FlexVolumeSource(driver="other/driver")),
            "no FlexVolume driver",
            id="another-driver",
        ),
        pytest.param(
            bound("host-1", flex_volume=None, local=LocalSource(path="/x")),
            "no FlexVolume driver",
            id="no-flexvolume",
        ),
        pytest.param(
            bound("host-1", labels={marks.NODE_LABEL: "node-2"}), "node-2", id="label-of-another"
        ),
    ],
)
def test_any_other_is_left_as_it_is(live: PersistentVolume, reason: str) -> None:
    assert reason in why_not(live, marks.FLEX_DRIVERS, NODE)
