"""Which claims get a copy of what a claim or a VolumeSnapshot has, and what the others are told."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from localvolume.backends.model import Abilities, Record
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.model import (
    Action,
    GiveBack,
    Hold,
    Keep,
    Make,
    Origin,
    Pool,
    Publish,
    Reject,
    TakeAway,
    Unprotect,
)
from localvolume.kube.objects import (
    CSISource,
    DataSource,
    PersistentVolume,
    PersistentVolumeClaim,
    TopologyRequirement,
    TopologyTerm,
)
from localvolume.volumes.capacity import GIB, MIB
from localvolume.volumes.claims import CLONING_FINALIZER
from localvolume.volumes.snapshots import MODE_CHANGE
from tests.decisions import support_dynamic
from tests.decisions.support_dynamic import (
    NODE,
    Thing,
    a,
    bound,
    claim,
    lvm_pool,
    pool,
    record,
    storage_class,
    volume,
)
from tests.decisions.support_dynamic_calls import given_to

SNAPSHOT = DataSource(api_group="snapshot.storage.k8s.io", kind="VolumeSnapshot", name="s")
CLONE = DataSource(kind="PersistentVolumeClaim", name="data-9")
POPULATOR = DataSource(api_group="x.example", kind="Populator", name="p")

CLASS = storage_class("local", CSI_DRIVER)
OF_SNAPSHOT = Origin(handle="csi-1", snapshot=True, cut_of="pvc-9")
OF_VOLUME = Origin(handle="pvc-9")


def copy(source: DataSource = SNAPSHOT, number: int = 1, **changes: Any) -> PersistentVolumeClaim:
    """A claim for a copy, routed here; its class waits for a pod, and none has come."""
    told: dict[str, Any] = {"provisioner": None, "node": "", "source_ref": source}
    return claim(number, **(told | changes))


def source(state: str = "offered", **changes: Any) -> Record:
    """The volume of `ns/data-9`, which is to be cloned."""
    return record(9, state, **({"driver": CSI_DRIVER} | changes))


def snapshot(state: str = "offered", **changes: Any) -> Record:
    """A snapshot of that volume."""
    fields: dict[str, Any] = {"name": "csi-1", "directory": "csi-1", "snapshot_of": "pvc-9"}
    fields |= {"claim": "", "claim_uid": "", "volume_uid": "", "request": "snapshot of pvc-9"}
    return source(state, **(fields | {"holds_bytes": GIB} | changes))


def home(*records: Record, **changes: Any) -> Pool:
    """The pool that has the snapshot and the volume, or these."""
    held = records or (source(), snapshot())
    able = Abilities(enforce=True, block=True, no_copies="")
    told: dict[str, Any] = {"provisioner": CSI_DRIVER, "abilities": able}
    return pool(*held, **(told | changes))


def action(*things: Thing, told: Origin | None = OF_SNAPSHOT, **changes: Any) -> Action:
    origins = {} if told is None else {"1": told}
    provisioners = frozenset({CSI_DRIVER, "dynamic.localvolume.dev"})
    given = {"origins": origins, "provisioners": provisioners} | changes
    classes = () if any(not isinstance(one, NOT_CLASSES) for one in things) else (CLASS,)
    return support_dynamic.action(*things, *classes, **given)


NOT_CLASSES = (PersistentVolumeClaim, PersistentVolume, Pool)


SLOW = Abilities(enforce=True, no_copies="ext4 shares nothing", full_copies=True)


def test_all_data_is_copied_where_the_class_says_so() -> None:
    allows = storage_class("local", CSI_DRIVER, full_copies=True)
    made = a(Make, action(copy(), home(abilities=SLOW), allows))
    assert made.record.full_copies
    assert made.origin is not None


# --- made where the content is -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asks", "told", "origin"),
    [(SNAPSHOT, OF_SNAPSHOT, "csi-1"), (CLONE, OF_VOLUME, "pvc-9")],
    ids=["restore", "clone"],
)
def test_made_in_the_pool_that_has_the_content(asks: DataSource, told: Origin, origin: str) -> None:
    large = pool(name="large", room=200 * GIB, provisioner=CSI_DRIVER)
    has = home(source(mode=0o750, uid=7), snapshot(mode=0o750, uid=7))
    made = a(Make, action(copy(asks), has, large, told=told))
    assert made.origin is not None
    assert (made.pool.name, made.origin.name, made.record.made_from) == ("fast", origin, origin)
    assert (made.record.claim_uid, made.record.driver) == ("1", CSI_DRIVER)
    assert (made.record.mode, made.record.uid) == (0o750, 7), "its root stays as it is"
    assert made.fresh


@pytest.mark.parametrize("selected", ["", NODE.name, "node-2"], ids=["none", "ours", "another"])
@pytest.mark.parametrize("immediate", [True, False])
@pytest.mark.parametrize("asked", [None, CSI_DRIVER])
def test_whichever_node_is_selected(selected: str, immediate: bool, asked: str | None) -> None:
    of = storage_class("local", CSI_DRIVER, immediate=immediate)
    a(Make, action(copy(node=selected, provisioner=asked), home(), of))


@pytest.mark.parametrize(
    ("label", "asked", "why"),
    [
        ("node-2", None, "another node has the content"),
        ("", None, "another node has the content"),
        (NODE.name, "other.example", "its provisioner is other.example"),
    ],
)
def test_another_is_to_make_it(label: str, asked: str | None, why: str) -> None:
    assert why in a(Keep, action(copy(label=label, provisioner=asked), home())).reason


def test_an_agent_that_does_not_serve_the_driver_leaves_it_alone() -> None:
    """The class is then none of those that it serves."""
    found = support_dynamic.action(copy(), home(), storage_class("other"))
    assert "its provisioner is nobody" in a(Keep, found).reason


def test_a_larger_one_has_the_room_it_asks_for() -> None:
    made = a(Make, action(copy(size="3Gi"), home()))
    assert made.record.size_bytes == 3 * GIB


def test_what_was_asked_for_the_source_may_be_asked_for_again() -> None:
    """Logical volumes are rounded up, and the copy needs all of the source."""
    has = source(size_bytes=1004 * MIB, backend="lvm", directory="")
    able = Abilities(enforce=True, no_copies="")
    where = lvm_pool(has, provisioner=CSI_DRIVER, abilities=able)
    made = a(Make, action(copy(CLONE, size="1001Mi"), where, told=OF_VOLUME))
    assert made.record.size_bytes == 1004 * MIB
    assert (
        "1000Mi is asked for"
        in a(Hold, action(copy(CLONE, size="1000Mi"), where, told=OF_VOLUME)).reason
    )


# --- not made, and why ---------------------------------------------------------------------------

AWAY = home(problem="it is not mounted")


@pytest.mark.parametrize(
    ("things", "told", "why"),
    [
        pytest.param((home(),), Origin(problem="VolumeSnapshot ns/s does not exist"),
                     "VolumeSnapshot ns/s does not exist", id="no-source"),
        pytest.param((pool(provisioner=CSI_DRIVER),), OF_SNAPSHOT, "has no snapshot csi-1",
                     id="not-here"),
        pytest.param((home(snapshot("removed", trash="t")),), OF_SNAPSHOT,
                     "has no snapshot csi-1", id="removed"),
        pytest.param((home(snapshot("making")),), OF_SNAPSHOT, "has no snapshot csi-1",
                     id="not-cut-yet"),
        pytest.param((home(snapshot(snapshot_of="pvc-8")),), OF_SNAPSHOT,
                     "snapshot csi-1 is of volume pvc-8, and not of pvc-9", id="of-another"),
        pytest.param((home(snapshot(driver="")),), OF_SNAPSHOT, "has no snapshot csi-1",
                     id="not-the-drivers"),
        pytest.param((home(),), Origin(handle="pvc-9", snapshot=True), "has no snapshot pvc-9",
                     id="a-volume-in-place-of-a-snapshot"),
        pytest.param((home(),), Origin(handle="csi-1"), "has no volume csi-1",
                     id="a-snapshot-in-place-of-a-volume"),
        pytest.param((AWAY,), OF_SNAPSHOT, "pool fast: it is not mounted", id="pool-away"),
        pytest.param((home(unreadable={"csi-1": "it is cut off"}),), OF_SNAPSHOT,
                     "cannot be read: it is cut off", id="record-unreadable"),
        pytest.param((home(snapshot(size_bytes=2 * GIB)),), OF_SNAPSHOT,
                     "csi-1 has 2Gi", id="too-small"),
        pytest.param((home(snapshot(volume_mode="Block")),), OF_SNAPSHOT,
                     "is of volumeMode Block, and Filesystem is asked for", id="other-mode"),
        pytest.param((home(snapshot(volume_mode="Block")),),
                     Origin(handle="csi-1", snapshot=True, other_mode=True),
                     "is never mounted as a filesystem", id="block-as-a-filesystem"),
        pytest.param((home(abilities=Abilities(enforce=True, no_copies="ext4 shares nothing")),),
                     OF_SNAPSHOT, "pool fast: ext4 shares nothing", id="backend-cannot"),
        pytest.param((home(abilities=SLOW),), OF_SNAPSHOT, "parameter fullCopies: allowed",
                     id="only-by-copying-all"),
        pytest.param((home(), storage_class("local", CSI_DRIVER, fs_type="xfs")), OF_SNAPSHOT,
                     "xfs is asked for", id="other-filesystem"),
        pytest.param((home(room=MIB),), OF_SNAPSHOT, "is there alone: put pool fast right",
                     id="no-room"),
        pytest.param((home(), storage_class("local", CSI_DRIVER, pools=frozenset({"x"}))),
                     OF_SNAPSHOT, "which is not for the class", id="pool-of-other-classes"),
        pytest.param((home(), storage_class("local", CSI_DRIVER, topologies=(TopologyTerm(
            match_label_expressions=(TopologyRequirement(key="zone", values=("z",)),)),))),
                     OF_SNAPSHOT, "does not allow node", id="topology"),
        pytest.param((home(), storage_class("local", CSI_DRIVER, affinity_keys=("rack",))),
                     OF_SNAPSHOT, "has no label rack", id="node-without-the-label"),
    ],
)  # fmt: skip
def test_said_on_the_claim_and_not_given_back(
    things: tuple[Thing, ...], told: Origin, why: str
) -> None:
    held = a(Hold, action(copy(), *things, told=told))
    assert why in held.reason
    assert held.event == "ProvisioningFailed"


def in_blocks(*records: Record, **changes: Any) -> Pool:
    """The pool that has the snapshot, or these, on a device of its own."""
    kept: dict[str, Any] = {"backend": "image", "directory": ""}
    return home(*(records or (snapshot(**kept),)), **({"backend": "image"} | changes))


ALLOWED = Origin(handle="csi-1", snapshot=True, cut_of="pvc-9", other_mode=True)


def test_a_filesystem_is_restored_as_blocks_where_an_administrator_allows_it() -> None:
    other = storage_class("local", CSI_DRIVER, fs_type="xfs")
    made = a(Make, action(copy(mode="Block"), in_blocks(), other, told=ALLOWED))
    assert made.origin is not None
    assert (made.origin.volume_mode, made.record.volume_mode) == ("Filesystem", "Block")
    assert made.record.made_from == "csi-1"
    # It is no must.
    a(Make, action(copy(), in_blocks(), told=ALLOWED))


def test_what_allows_it_is_said_where_nothing_else_lacks() -> None:
    asks = copy(mode="Block")
    why = "is of volumeMode Filesystem, and Block is asked for"
    held = a(Hold, action(asks, in_blocks()))
    assert f'{why}; the annotation {MODE_CHANGE}: "true" of its' in held.reason
    for has, told in (
        (home(), OF_SNAPSHOT),
        (in_blocks(source(backend="image", directory="")), OF_VOLUME),
    ):
        assert a(Hold, action(asks, has, told=told)).reason.endswith(why)


@pytest.mark.parametrize("backend", ["directory", "btrfs"])
def test_files_are_no_blocks(backend: Any) -> None:
    has = home(snapshot(backend=backend), backend=backend)
    held = a(Hold, action(copy(mode="Block"), has, told=ALLOWED))
    assert f"the backend {backend} keeps files" in held.reason


def test_only_a_thin_logical_volume_shows_nothing_of_others() -> None:
    """A thick one is zeroed only if its user is to see all of it."""
    able = Abilities(enforce=True, block=True, no_copies="")

    def asked(**kind: Any) -> Action:
        cut = snapshot(backend="lvm", directory="", **kind)
        where = lvm_pool(cut, provisioner=CSI_DRIVER, abilities=able)
        return action(copy(mode="Block"), where, told=ALLOWED)

    assert a(Make, asked(sparse=True)).record.volume_mode == "Block"
    assert "may be what other tenants had" in a(Hold, asked(sparse=False)).reason


def test_nothing_is_said_before_anything_is_known() -> None:
    assert "is being looked up" in a(Keep, action(copy(), home(), told=None)).reason


def test_content_of_another_namespace_is_not_taken() -> None:
    other = DataSource(kind="PersistentVolumeClaim", name="data-9", namespace="theirs")
    assert "of namespace theirs" in a(Reject, action(copy(other), home(), told=OF_VOLUME)).reason
    own = DataSource(kind="PersistentVolumeClaim", name="data-9", namespace="ns")
    a(Make, action(copy(own), home(), told=OF_VOLUME))


def test_a_populators_claim_is_left_to_it() -> None:
    asked = copy(POPULATOR, provisioner=CSI_DRIVER, node=NODE.name)
    assert "a volume populator" in a(Keep, action(asked, home())).reason


@pytest.mark.parametrize("asks", [SNAPSHOT, CLONE])
def test_the_other_provisioner_names_the_one_that_can(asks: DataSource) -> None:
    refused = support_dynamic.action(claim(source=asks, source_ref=asks))
    assert f"only {CSI_DRIVER} clones and restores" in a(Reject, refused).reason


def test_two_do_not_get_the_same_room() -> None:
    has = home(room=int(1.5 * GIB))
    found = support_dynamic.planned(
        copy(),
        copy(number=2),
        has,
        CLASS,
        origins={"1": OF_SNAPSHOT, "2": OF_SNAPSHOT},
        provisioners=frozenset({CSI_DRIVER}),
    )
    a(Make, found["pvc-1"])
    assert "is there alone" in a(Hold, found["pvc-2"]).reason


# --- what was begun ------------------------------------------------------------------------------


def begun(state: str = "making", **changes: Any) -> Record:
    return record(1, state, **({"driver": CSI_DRIVER, "made_from": "csi-1"} | changes))


def test_what_was_begun_is_completed_with_the_same_content() -> None:
    made = a(Make, action(copy(), home(source(), snapshot(), begun()), told=None))
    assert made.origin is not None
    assert (made.origin.name, made.record.made_from, made.fresh) == ("csi-1", "csi-1", False)


@pytest.mark.parametrize(
    "there",
    [
        pytest.param((), id="gone"),
        pytest.param((snapshot("removed", trash="t"),), id="removed"),
        pytest.param((snapshot(size_bytes=2 * GIB),), id="larger"),
    ],
)
def test_what_cannot_be_completed_is_taken_away(there: tuple[Record, ...]) -> None:
    """Nobody was told of it, and the claim must not wait for it in vain."""
    taken = a(TakeAway, action(copy(), home(*there, begun()), told=None))
    assert (taken.record.state, taken.spare) == ("making", True)


def test_a_clone_is_completed_while_its_tenant_has_the_volume() -> None:
    half = home(source(), begun(made_from="pvc-9"))
    a(Make, action(copy(CLONE), half, given_to("ns", "pvc-9"), CLASS, told=None))
    for other in ([given_to("theirs", "pvc-9")], [given_to(None, "pvc-9")], []):
        taken = a(TakeAway, action(copy(CLONE), half, *other, CLASS, told=None))
        assert (taken.record.name, taken.spare) == ("pvc-1", True)
        assert taken.reason == "no claim of namespace ns has volume pvc-9 any more"


def test_no_clone_is_completed_for_a_claim_that_the_volume_is_kept_from() -> None:
    """The API server was set back to before another claim had it."""
    kept = source(claim_uid="9", given=("5",), generation=1)
    half = home(kept, begun(made_from="pvc-9"))
    taken = a(TakeAway, action(copy(CLONE), half, given_to("ns", "pvc-9"), CLASS, told=None))
    assert taken.reason == "no claim of namespace ns has volume pvc-9 any more"
    held = a(Hold, action(copy(CLONE), home(kept), given_to("ns", "pvc-9"), CLASS, told=OF_VOLUME))
    assert (
        "volume pvc-9 is kept from its claim: its pool remembers claims that had it" in held.reason
    )


@pytest.mark.parametrize("state", ["made", "offered"])
def test_what_is_complete_needs_its_origin_no_more(state: str) -> None:
    done = begun(state, volume_uid="")
    found = action(copy(), home(done), told=Origin(problem="it is gone"))
    assert isinstance(found, Make | Publish)
    assert getattr(found, "origin", None) is None


# --- the claim that is cloned --------------------------------------------------------------------


def cloned(**changes: Any) -> PersistentVolumeClaim:
    """The claim `ns/data-9` with the finalizer of clones."""
    found = bound(9, provisioner=CSI_DRIVER, **changes)
    return replace(found, metadata=replace(found.metadata, finalizers=(CLONING_FINALIZER,)))


def of_driver(number: int = 9) -> PersistentVolume:
    found = volume(number, provisioner=CSI_DRIVER)
    csi = CSISource(driver=CSI_DRIVER, volume_handle=f"pvc-{number}")
    return replace(found, spec=replace(found.spec, local=None, csi=csi))


def about_source(*things: Thing, **changes: Any) -> Action:
    return action(*things, of_driver(), name="pvc-9", told=OF_VOLUME, **changes)


def test_a_claim_is_kept_while_it_is_cloned() -> None:
    a(Keep, about_source(cloned(), copy(CLONE), home()))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(None, id="none"),
        pytest.param(bound(1, source_ref=CLONE, provisioner=CSI_DRIVER), id="done"),
        pytest.param(copy(CLONE, deleted=True), id="given-up"),
        pytest.param(copy(CLONE, namespace="theirs"), id="of-another-namespace"),
        pytest.param(copy(SNAPSHOT), id="not-of-the-claim"),
    ],
)
def test_and_no_longer(other: PersistentVolumeClaim | None) -> None:
    things = (cloned(),) if other is None else (cloned(), other)
    assert a(Unprotect, about_source(*things, home())).claim.metadata.name == "data-9"


def test_nor_while_its_volume_is_kept_from_it() -> None:
    """Whoever deletes that claim need not wait for the volume."""
    a(Unprotect, about_source(cloned(deleted=True), home(source(given=("5",), generation=1))))


def test_only_what_was_begun_keeps_a_claim_that_is_being_deleted() -> None:
    going = cloned(deleted=True)
    a(Unprotect, about_source(going, copy(CLONE), home()))
    half = begun(made_from="pvc-9")
    a(Keep, about_source(going, copy(CLONE), home(source(), half)))
    a(Keep, about_source(going, copy(CLONE, deleted=True), home(), busy={"pvc-1"}))


def test_claims_without_the_finalizer_and_those_of_others_are_left_alone() -> None:
    a(Keep, about_source(bound(9, provisioner=CSI_DRIVER), home()))
    others = cloned()
    notes = {"metadata": replace(others.metadata, annotations={})}
    theirs = action(replace(others, **notes), volume(9), home(), name="pvc-9")
    assert not isinstance(theirs, Unprotect)


def test_room_on_another_node_helps_no_copy() -> None:
    """A plain claim is given back instead."""
    plain = claim(provisioner=CSI_DRIVER, size="200Gi")
    a(GiveBack, action(plain, home(), told=None))
    a(Hold, action(copy(size="200Gi", node=NODE.name, provisioner=CSI_DRIVER), home()))
