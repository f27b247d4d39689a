"""What calls for snapshots, restores and clones are answered, or what is done for them first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from localvolume.backends.model import Abilities, Record, Usage
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.calls import (
    Differs,
    InUse,
    NoRoom,
    NotNow,
    OutOfRange,
    Unknown,
    Wrong,
)
from localvolume.dynamic.model import (
    Action,
    AnswerCall,
    Call,
    GrowCall,
    Keep,
    MakeCalled,
    Pool,
    Purge,
    RemoveCall,
    RemoveCalled,
    SnapshotCall,
    TakeAway,
    Told,
)
from localvolume.volumes.capacity import GIB, MIB
from tests.decisions.support_dynamic import a, action, lv, lvm_pool, planned, pool, record, volume
from tests.decisions.support_dynamic_calls import called, claimed, create, given_to, judged, refused

COPIES = Abilities(enforce=True, block=True, no_copies="")
CUT = "cut-1"
MEANWHILE = 64 * MIB
"""What may be written until it is cut."""
CUT_NOW = SnapshotCall(key=CUT, source="pvc-1")
REMOVE_CUT = RemoveCall(key=CUT, snapshot=True)
CONTENT = "Filesystem of 1073741824 bytes, content of something"


def cow(*records: Record, **changes: Any) -> Pool:
    """A pool whose volumes can be copied at once."""
    fields: dict[str, Any] = {"abilities": COPIES, "backend": "btrfs"}
    return pool(*records, **(fields | changes))


def holding(used: int, found: Pool, taken: int | None = None) -> Pool:
    """The pool, with a volume `pvc-1` that holds so much."""
    usage = {"pvc-1": Usage(used_bytes=used, taken_bytes=taken)}
    return replace(found, report=replace(found.report, usage={**found.report.usage, **usage}))


def origin(**changes: Any) -> Record:
    """The volume that is copied: `pvc-1`."""
    return called(**({"backend": "btrfs"} | changes))


def cut(state: str = "offered", **changes: Any) -> Record:
    """A snapshot of it."""
    fields: dict[str, Any] = {
        "name": CUT,
        "directory": CUT,
        "request": "snapshot of pvc-1",
        "snapshot_of": "pvc-1",
        "cut_at": 1_800_000_000_000_000_000 if state != "making" else 0,
        "holds_bytes": 100 * MIB,
    }
    return origin(state=state, **(fields | changes))


def restore(size: int = GIB, **changes: Any) -> Any:
    """A call for a volume `pvc-2` with the content of that snapshot."""
    fields: dict[str, Any] = {
        "name": "pvc-2",
        "source": CUT,
        "from_snapshot": True,
        "request": CONTENT,
    }
    return create(size, **(fields | changes))


def clone(size: int = GIB, **changes: Any) -> Any:
    """A call for a volume `pvc-2` with the content of `pvc-1`."""
    return restore(size, **({"source": "pvc-1", "from_snapshot": False} | changes))


def copied(state: str = "making", **changes: Any) -> Record:
    """What such a call makes."""
    fields: dict[str, Any] = {"name": "pvc-2", "directory": "pvc-2", "request": CONTENT}
    return origin(state=state, **(fields | {"made_from": "pvc-1"} | changes))


# --- snapshots ---------------------------------------------------------------------------------


def test_a_snapshot_is_made_in_the_pool_of_its_volume() -> None:
    given = origin(size_bytes=3 * GIB, fs_type="xfs", mode=0o750, uid=7, gid=8, class_name="db")
    ready = holding(GIB, cow(given))
    made = a(MakeCalled, judged(CUT_NOW, cow(name="other", room=900 * GIB), ready))
    assert (made.pool.name, made.origin) == ("fast", given)
    expected = replace(
        given,
        name=CUT,
        directory=CUT,
        state="making",
        request="snapshot of pvc-1",
        snapshot_of="pvc-1",
        holds_bytes=GIB + MEANWHILE,
    )
    assert made.record == expected


@pytest.mark.parametrize("there", [[], [cut("making")]])
def test_a_snapshot_for_a_namespace_is_cut_of_what_a_claim_of_it_has(there: list[Record]) -> None:
    call, ready = replace(CUT_NOW, namespace="ns-a"), cow(origin(), *there)
    a(MakeCalled, judged(call, ready, given_to("ns-a")))
    for other in ([given_to("ns-b")], [given_to(None)], [given_to("ns-a", "pvc-2")], []):
        why = refused(Unknown, call, ready, *other)
        assert why == "no claim of namespace ns-a has volume pvc-1 any more"
    # The object of another kind of volume may have any name.
    driven, plain = given_to("ns-a").spec, volume(1)
    spec = structs.replace(driven, csi=None, local=plain.spec.local)
    refused(Unknown, call, ready, structs.replace(plain, spec=spec))
    # A call by the socket names no namespace.
    a(MakeCalled, judged(CUT_NOW, ready, given_to("ns-b")))


def test_no_snapshot_is_cut_for_a_claim_that_the_volume_is_kept_from() -> None:
    """Another had it since, and the API server was set back to before. The same by the socket."""
    given, held = origin(claim_uid="9", given=("5",), generation=1), given_to("ns-a")
    kept = "volume pvc-1 is kept from its claim: its pool remembers claims that had it since"
    for call in (replace(CUT_NOW, namespace="ns-a"), CUT_NOW):
        a(MakeCalled, judged(call, cow(replace(given, given=(), generation=0)), held))
        for there in ([], [cut("making")]):
            assert refused(NotNow, call, cow(given, *there), held).startswith(kept)
    clone = restore(source="pvc-1", from_snapshot=False)
    for there in ([], [copied()]):
        assert refused(NotNow, clone, cow(given, *there), held).startswith(kept)


@pytest.mark.parametrize(("state", "kind"), [("made", MakeCalled), ("offered", AnswerCall)])
def test_what_was_cut_before_its_volume_was_given_away_is_the_snapshot(
    state: str, kind: type[Action]
) -> None:
    call = replace(CUT_NOW, namespace="ns-a")
    found: Any = a(kind, judged(call, cow(origin(), cut(state)), given_to("ns-b")))
    assert getattr(found, "refusal", None) is None
    assert found.record == cut(state)


def test_why_a_volume_cannot_be_looked_at_is_said_before_whose_it_is() -> None:
    call = replace(CUT_NOW, namespace="ns-a")
    refused(NotNow, call, cow(problem="away"), given_to("ns-b"))


def test_a_snapshot_is_nobodys_whoever_has_its_volume() -> None:
    given = claimed(
        backend="btrfs",
        given=("5",),
        generation=1,
        made_from="pvc-0",
        project=7,
        inode=300,
        overwrite=True,
    )
    record = a(MakeCalled, judged(CUT_NOW, cow(given))).record
    assert (record.claim, record.claim_uid, record.given, record.volume_uid) == ("", "", (), "")
    assert record.generation == 0
    assert (record.project, record.inode, record.made_from) == (0, 0, "")
    assert record.request
    assert record.overwrite, "what is in it is overwritten in the end, as its volume's is"


@pytest.mark.parametrize(
    ("used", "taken", "holds"),
    [
        (GIB // 2, None, GIB // 2 + MEANWHILE),
        (GIB // 2, GIB // 4, GIB // 2 + MEANWHILE),
        # What was deleted in an image is still in the blocks of its file.
        (GIB // 4, GIB // 2, GIB // 2 + MEANWHILE),
        (GIB // 4, 2 * GIB, GIB),
        (None, GIB // 2, GIB),
    ],
)
def test_a_snapshot_takes_as_much_room_as_its_volume_holds(
    used: Any, taken: int | None, holds: int
) -> None:
    ready = holding(used, cow(origin()), taken)
    assert a(MakeCalled, judged(CUT_NOW, ready)).record.holds_bytes == holds


def test_one_whose_volume_cannot_be_measured_may_hold_all_of_it() -> None:
    ready = cow(origin(size_bytes=3 * GIB))
    unmeasured = replace(ready, report=replace(ready.report, usage={}))
    assert a(MakeCalled, judged(CUT_NOW, unmeasured)).record.holds_bytes == 3 * GIB


def test_no_snapshot_without_the_room_for_it() -> None:
    little = holding(GIB, cow(origin(size_bytes=2 * GIB), room=GIB + MEANWHILE - 1))
    assert "may come to hold 1088Mi" in refused(NoRoom, CUT_NOW, little)


def test_the_room_of_a_snapshot_is_missing_to_others() -> None:
    calls = [CUT_NOW, SnapshotCall(key="cut-2", source="pvc-1")]
    found = planned(holding(GIB, cow(origin(), room=2 * GIB - 1)), calls=calls)
    assert isinstance(found[CUT], MakeCalled)
    assert isinstance(a(AnswerCall, found["cut-2"]).refusal, NoRoom)


def test_a_repeated_call_gets_its_snapshot() -> None:
    for records in ([cut(), origin()], [cut()]):
        answer = a(AnswerCall, judged(CUT_NOW, cow(*records)))
        assert (answer.record, answer.refusal) == (cut(), None)


@pytest.mark.parametrize("state", ["making", "made"])
def test_what_a_call_began_is_completed_as_it_was_begun(state: str) -> None:
    made = a(MakeCalled, judged(CUT_NOW, cow(cut(state), origin())))
    assert made.record == cut(state)
    assert made.origin == (origin() if state == "making" else None)


def test_a_complete_snapshot_needs_its_volume_no_more() -> None:
    assert a(MakeCalled, judged(CUT_NOW, cow(cut("made")))).record == cut("made")


@pytest.mark.parametrize("state", ["making", "made", "offered"])
@pytest.mark.parametrize("other", [{"snapshot_of": "pvc-9"}, {"snapshot_of": ""}])
def test_the_name_of_something_else_differs(state: str, other: dict[str, Any]) -> None:
    taken = cow(cut(state, **other), origin())
    assert "has that name" in refused(Differs, CUT_NOW, taken)


@pytest.mark.parametrize("other", ["pvc-1", "pvc-9", ""])
def test_a_name_is_free_once_what_had_it_is_purged(other: str) -> None:
    gone = cut("removed", snapshot_of=other, trash="cut-1.00000000")
    refused(NotNow, CUT_NOW, cow(gone, origin()))


@pytest.mark.parametrize(
    "there",
    [
        [],
        [record(backend="btrfs")],
        [origin(state="making")],
        [origin(state="made")],
        [origin(state="removed", trash="pvc-1.00000000")],
        [origin(snapshot_of="pvc-0")],
    ],
)
def test_there_is_no_snapshot_of_what_is_no_volume_of_ours(there: list[Record]) -> None:
    assert "no volume pvc-1" in refused(Unknown, CUT_NOW, cow(*there))


@pytest.mark.parametrize("call", [CUT_NOW, clone()])
def test_a_pool_that_cannot_copy_says_why(call: Call) -> None:
    why = "its filesystem ext4 has no reflinks"
    given = cow(origin(), abilities=Abilities(enforce=True, no_copies=why))
    assert why in refused(Wrong, call, given)
    assert "makes no snapshots" in refused(Wrong, call, pool(origin()))


SLOW = Abilities(enforce=True, no_copies="ext4 shares nothing", full_copies=True)


def test_all_data_is_copied_only_where_the_class_says_so() -> None:
    given = cow(origin(full_copies=True), abilities=SLOW)
    for call in (CUT_NOW, clone()):
        why = refused(Wrong, call, given)
        assert "ext4 shares nothing. Or let its class allow" in why
        assert "fullCopies: allowed" in why
    cut_in_full = a(MakeCalled, judged(replace(CUT_NOW, full_copies=True), given))
    assert cut_in_full.record.full_copies
    cloned = a(MakeCalled, judged(clone(full_copies=True), given))
    assert cloned.record.full_copies
    # A class cannot allow what no copying helps with.
    never = cow(origin(), abilities=replace(SLOW, full_copies=False))
    assert refused(Wrong, clone(full_copies=True), never).endswith("ext4 shares nothing")
    broken = cow(origin(), abilities=SLOW)
    broken = replace(broken, report=replace(broken.report, unwell="it has shut down"))
    assert "has shut down" in refused(NotNow, replace(CUT_NOW, full_copies=True), broken)


def test_a_pool_may_have_clones_and_no_snapshots() -> None:
    able = replace(COPIES, no_snapshots="a directory has no content of one moment")
    given = cow(origin(), abilities=able)
    assert "no content of one moment" in refused(Wrong, CUT_NOW, given)
    assert a(MakeCalled, judged(clone(), given)).origin is not None


def test_a_snapshot_says_itself_whether_all_data_may_be_copied() -> None:
    """Whatever the class of its volume says."""
    made = a(MakeCalled, judged(CUT_NOW, cow(origin(full_copies=True))))
    assert not made.record.full_copies


@pytest.mark.parametrize("call", [CUT_NOW, clone()])
def test_a_pool_that_has_failed_is_waited_for(call: Call) -> None:
    ready = cow(origin())
    failed = replace(ready, report=replace(ready.report, unwell="its filesystem has shut down"))
    assert "has shut down" in refused(NotNow, call, failed)


@pytest.mark.parametrize("call", [CUT_NOW, clone()])
def test_nothing_is_copied_while_it_may_lie_in_a_pool_that_is_away(call: Call) -> None:
    away = pool(name="away", problem="it is not mounted")
    assert "it is not mounted" in refused(NotNow, call, cow(), away)
    damaged = cow(unreadable={"pvc-1": "it is no JSON"})
    assert "it is no JSON" in refused(NotNow, call, damaged)
    refused(NotNow, call, cow(origin()), cow(origin(), name="other"))


def test_a_snapshot_does_not_grow() -> None:
    refused(Unknown, GrowCall(key=CUT, size_bytes=GIB, limit_bytes=0), cow(cut()))


# --- restores and clones -----------------------------------------------------------------------


def test_a_restore_is_made_in_the_pool_of_its_snapshot() -> None:
    given = cut(fs_type="xfs", mode=0o750, uid=7, gid=8)
    large = cow(name="other", room=900 * GIB)
    made = a(MakeCalled, judged(restore(2 * GIB), large, cow(given)))
    assert (made.pool.name, made.origin) == ("fast", given)
    made_as = made.record
    assert (made_as.name, made_as.directory, made_as.size_bytes) == ("pvc-2", "pvc-2", 2 * GIB)
    assert (made_as.made_from, made_as.snapshot_of, made_as.request) == (CUT, "", CONTENT)
    # Its filesystem and the owner of its root are the snapshot's.
    assert (made_as.fs_type, made_as.mode, made_as.uid, made_as.gid) == ("xfs", 0o750, 7, 8)


def test_a_clone_is_made_beside_its_volume() -> None:
    for given in (origin(), claimed(backend="btrfs")):
        made = a(MakeCalled, judged(clone(), cow(given)))
        assert (made.origin, made.record.made_from) == (given, "pvc-1")
        assert (made.record.claim, made.record.claim_uid) == ("", "")


def test_a_restore_needs_the_snapshot_alone() -> None:
    assert isinstance(judged(restore(), cow(cut())), MakeCalled)


@pytest.mark.parametrize("demand", ["overwrite", "discard"])
def test_what_is_done_with_content_in_the_end_is_done_with_its_copies(demand: str) -> None:
    given = origin(**{demand: True})
    assert getattr(a(MakeCalled, judged(clone(), cow(given))).record, demand)
    plain = a(MakeCalled, judged(clone(), cow(origin()))).record
    assert not getattr(plain, demand)


def test_without_a_size_it_has_that_of_its_source() -> None:
    for given in (restore(0), restore(0, limit=3 * GIB), restore(0, limit=4 * GIB)):
        ready = cow(cut(size_bytes=3 * GIB))
        made = a(MakeCalled, judged(given, ready))
        assert made.record.size_bytes == 3 * GIB
    refused(OutOfRange, restore(0, limit=3 * GIB - 1), cow(cut(size_bytes=3 * GIB)))


@pytest.mark.parametrize("call", [restore(GIB - 1), clone(GIB - 1)])
def test_one_smaller_than_its_source_is_out_of_range(call: Call) -> None:
    assert "needs as much" in refused(OutOfRange, call, cow(origin(), cut()))


def test_one_that_is_rounded_up_to_its_source_is_not_smaller() -> None:
    given = lv(driver=CSI_DRIVER, request="x", size_bytes=GIB + 4 * MIB)
    made = a(MakeCalled, judged(clone(GIB + 1), lvm_pool(given, abilities=COPIES)))
    assert made.record.size_bytes == GIB + 4 * MIB


@pytest.mark.parametrize("call", [clone(mode="Block"), restore(mode="Block")])
def test_the_volume_mode_is_that_of_the_source(call: Call) -> None:
    ready = pool(origin(backend="image"), cut(backend="image"), backend="image", abilities=COPIES)
    assert "volumeMode Filesystem" in refused(Wrong, call, ready)


@pytest.mark.parametrize(
    ("has", "asked", "fits"),
    [
        ("", "", True),
        ("", "ext4", True),
        ("xfs", "", True),
        ("xfs", "xfs", True),
        ("xfs", "ext4", False),
        ("", "xfs", False),
    ],
)
def test_the_filesystem_is_that_of_the_source(has: str, asked: str, fits: bool) -> None:
    given = origin(backend="image", directory="", fs_type=has)
    ready, call = pool(given, backend="image", abilities=COPIES), clone(fs_type=asked)
    if fits:
        assert a(MakeCalled, judged(call, ready)).record.fs_type == has
    else:
        assert f"{asked} is asked for" in refused(Wrong, call, ready)


def test_a_directory_has_no_filesystem_of_its_own() -> None:
    asked = clone(fs_type="xfs")
    assert "no filesystem of its own" in refused(Wrong, asked, cow(origin()))


def test_a_class_for_other_pools_has_no_copies_of_these() -> None:
    call = clone(pools=frozenset({"other"}))
    both = cow(origin()), cow(name="other")
    assert "is in pool fast" in refused(Wrong, call, *both)


def test_no_copy_without_the_room_for_all_of_it() -> None:
    both = cow(origin(), room=2 * GIB - 1), cow(name="other")
    assert "pool fast" in refused(NoRoom, clone(2 * GIB), *both)


@pytest.mark.parametrize(
    ("call", "there"),
    [
        (restore(), []),
        (restore(), [cut("making"), origin()]),
        (restore(), [cut("made"), origin()]),
        (restore(), [cut("removed", trash="cut-1.00000000"), origin()]),
        (clone(), [cut()]),
        (clone(), [origin(state="removed", trash="pvc-1.00000000")]),
        (clone(), [record(backend="btrfs")]),
        # Neither kind is taken for the other.
        (restore(source="pvc-1"), [origin()]),
        (clone(source=CUT), [cut()]),
    ],
)
def test_a_source_that_is_not_there(call: Call, there: list[Record]) -> None:
    assert "there is no" in refused(Unknown, call, cow(*there))


def test_a_snapshot_whose_pool_was_taken_out_of_the_configuration_is_not_said_to_be_gone() -> None:
    for told, why in (
        (TELLS, "snapshot content mine is of it: bring its pool back"),
        (UNREAD, "not all have been read yet"),
    ):
        found = action(cow(), name="pvc-2", calls=[restore()], told=told)
        refusal = a(AnswerCall, found).refusal
        assert type(refusal) is NotNow
        assert why in str(refusal)


@pytest.mark.parametrize("there", [[], [origin()]])
def test_a_repeated_call_gets_its_copy_without_the_source(there: list[Record]) -> None:
    made = copied("offered")
    assert a(AnswerCall, judged(clone(), cow(made, *there))).record == made


def test_another_source_differs() -> None:
    refused(Differs, clone(request="other content"), cow(copied("offered")))


@pytest.mark.parametrize("made_from", ["", "pvc-9"])
def test_a_claims_volume_with_other_content_is_not_passed_off_for_it(made_from: str) -> None:
    other = replace(copied("offered"), claim="ns/data-2", claim_uid="2", request="")
    same = a(AnswerCall, judged(clone(), cow(other)))
    assert (same.record, same.refusal) == (other, None)
    refused(Differs, clone(), cow(replace(other, made_from=made_from)))


def test_a_snapshot_is_not_passed_off_for_a_volume() -> None:
    assert "a snapshot has" in refused(Differs, create(name=CUT), cow(cut()))


@pytest.mark.parametrize("grown", [GIB, GIB // 2])
def test_a_copy_that_was_begun_is_completed_with_the_same_source(grown: int) -> None:
    given = origin(size_bytes=grown)
    made = a(MakeCalled, judged(clone(), cow(copied(), given)))
    assert (made.record, made.origin) == (copied(), given)


@pytest.mark.parametrize(("call", "begun"), [(clone(), copied()), (CUT_NOW, cut("making"))])
@pytest.mark.parametrize(
    "there",
    [
        [],
        [origin(state="removed", trash="pvc-1.00000000")],
        [origin(size_bytes=2 * GIB)],
    ],
)
def test_what_was_begun_with_another_source_is_taken_away_and_begun_anew(
    call: Call, begun: Record, there: list[Record]
) -> None:
    removed = a(RemoveCalled, judged(call, cow(begun, *there)))
    assert removed.record == begun
    assert isinstance(removed.refusal, NotNow)


# --- removing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["making", "made", "offered"])
@pytest.mark.parametrize("there", [[], [origin()], [copied("offered", made_from=CUT)]])
def test_a_snapshot_is_removed_whatever_came_of_it(state: str, there: list[Record]) -> None:
    removed = a(RemoveCalled, judged(REMOVE_CUT, cow(cut(state), *there)))
    assert (removed.record, removed.refusal) == (cut(state), None)


def test_a_volume_is_removed_though_it_has_snapshots_and_clones() -> None:
    given = cow(origin(), cut(), copied("offered"))
    assert a(RemoveCalled, judged(RemoveCall(key="pvc-1"), given)).record == origin()


@pytest.mark.parametrize(
    ("call", "there"),
    [
        (REMOVE_CUT, []),
        (REMOVE_CUT, [cut("removed", trash="cut-1.00000000")]),
        # A call for one kind sees nothing of the other.
        (RemoveCall(key=CUT), [cut()]),
        (RemoveCall(key="pvc-1", snapshot=True), [origin()]),
        (RemoveCall(key="pvc-1", snapshot=True), [record()]),
    ],
)
def test_a_snapshot_that_is_not_there_is_gone(call: Call, there: list[Record]) -> None:
    answer = a(AnswerCall, judged(call, cow(*there)))
    assert (answer.record, answer.refusal) == (None, None)


TELLS = Told(handles={CUT: "snapshot content mine"})
UNREAD = Told(unread="volumesnapshotcontents: not all have been read yet")


@pytest.mark.parametrize(("told", "why"), [(TELLS, "content mine is of it"), (UNREAD, "not all")])
def test_a_snapshot_that_may_be_in_a_pool_that_is_not_configured_is_not_said_to_be_gone(
    told: Told, why: str
) -> None:
    answer = a(AnswerCall, action(cow(), name=CUT, calls=[REMOVE_CUT], told=told))
    assert isinstance(answer.refusal, NotNow)
    assert why in answer.reason
    # What was removed stays on record until nothing tells of it, for the call that is repeated.
    gone = cow(cut("removed", trash="cut-1.00000000"))
    assert a(AnswerCall, action(gone, name=CUT, calls=[REMOVE_CUT], told=told)).refusal is None
    assert why in a(Keep, action(gone, name=CUT, told=told)).reason
    a(Purge, action(gone, name=CUT, told=Told(handles={"cut-2": "snapshot content other"})))


def test_a_copy_that_a_claim_has_is_not_removed() -> None:
    stock = volume(2, pool=None, provisioner=CSI_DRIVER)
    call = RemoveCall(key="pvc-2")
    refused(InUse, call, stock, cow(copied("offered")))


# --- beside claims -----------------------------------------------------------------------------


@pytest.mark.parametrize("there", [[], [origin()]])
def test_a_snapshot_that_nobody_waits_for_is_taken_away_before_it_is_complete(
    there: list[Record],
) -> None:
    begun = cut("making")
    taken = a(TakeAway, action(cow(begun, *there), name=CUT, gone={""}, absent={CUT}))
    assert taken.record == begun


AWAITED = Told(coming={CUT: "snapshot content mine"})


@pytest.mark.parametrize(
    ("told", "why"), [(AWAITED, "content mine waits for it"), (UNREAD, "not all have been read")]
)
def test_a_snapshot_that_a_content_waits_for_stays_for_the_call_that_goes_on_with_it(
    told: Told, why: str
) -> None:
    begun = cut("making")
    assert why in a(Keep, action(cow(begun, origin()), name=CUT, told=told)).reason
    # What else was begun by a call waits for nobody.
    a(TakeAway, action(cow(replace(begun, snapshot_of="")), name=CUT, told=told))
    a(TakeAway, action(cow(begun), name=CUT, told=Told(coming={"cut-2": "other"})))


@pytest.mark.parametrize("state", ["made", "offered"])
@pytest.mark.parametrize("there", [[], [origin()]])
def test_no_judgement_of_claims_touches_a_snapshot(state: str, there: list[Record]) -> None:
    found = action(cow(cut(state), *there), name=CUT, gone={""}, absent={CUT, "pvc-1"})
    assert isinstance(found, Keep)


def test_a_removed_snapshot_is_purged() -> None:
    gone = cut("removed", trash="cut-1.00000000")
    assert a(Purge, action(cow(gone, origin()), name=CUT)).record == gone
