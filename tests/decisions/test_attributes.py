"""What a VolumeAttributesClass may say, when its volume gets that, and what is said if not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from localvolume.backends.model import Record
from localvolume.backends.pool.records import decode, encode
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.attributes import class_facts
from localvolume.dynamic.calls import NotNow, Unknown, Wrong
from localvolume.dynamic.model import (
    Action,
    AnswerCall,
    AttributesClass,
    ClassFacts,
    Delete,
    GiveBack,
    Grow,
    Hold,
    Keep,
    Make,
    MakeCalled,
    MarkReleased,
    Modify,
    ModifyCall,
    ModifyCalled,
    Pool,
    Publish,
    Reject,
    TellInfeasible,
    TellModify,
)
from localvolume.dynamic.plan.attributes import changed, classes_to_ask
from localvolume.dynamic.plan.throttling import (
    Target,
    Write,
    pod_of,
    target_of,
    to_write,
)
from localvolume.dynamic.plan.world import World
from localvolume.kube.objects import (
    Condition,
    CSISource,
    Meta,
    ModifyVolumeStatus,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeAttributesClass,
)
from localvolume.volumes.attributes import (
    NONE,
    Attributes,
    BadAttributes,
    changed_by,
    in_place_of,
    read,
)
from tests.decisions.support_dynamic import (
    a,
    action,
    bound,
    claim,
    facts,
    pool,
    record,
    storage_class,
    unwanted,
    volume,
)
from tests.decisions.support_dynamic_calls import create

GOLD = Attributes(class_name="gold", undo_seconds=60.0)
SILVER = Attributes(class_name="silver")
KNOWN = {"gold": AttributesClass(attributes=GOLD), "silver": AttributesClass(attributes=SILVER)}
ABSENT = {"gold": AttributesClass(missing="there is no such class")}
WRONG = {"gold": AttributesClass(problem="parameter x is not known")}


def ours_class(**wish: Any) -> ClassFacts:
    return storage_class(provisioner=CSI_DRIVER, **wish)


def of(found: Record) -> Any:
    """The pool that has the volume."""
    return pool(found, provisioner=CSI_DRIVER)


def csi_record(has: Attributes = NONE, state: str = "offered", **changes: Any) -> Record:
    return record(1, state, **({"driver": CSI_DRIVER, "attributes": has} | changes))


def csi_volume(name: str = "", **changes: Any) -> PersistentVolume:
    found = volume(provisioner=CSI_DRIVER, **changes)
    source = CSISource(driver=CSI_DRIVER, volume_handle=found.metadata.name)
    spec = replace(found.spec, local=None, csi=source, volume_attributes_class_name=name or None)
    return replace(found, spec=spec)


def naming(
    found: PersistentVolumeClaim, name: str, current: str = "", said: tuple[str, str] | None = None
) -> PersistentVolumeClaim:
    """The claim with a class, the one that it has, and its modifyVolumeStatus."""
    status = None
    if said is not None:
        status = ModifyVolumeStatus(target_volume_attributes_class_name=said[0], status=said[1])
    return replace(
        found,
        spec=replace(found.spec, volume_attributes_class_name=name or None),
        status=replace(
            found.status,
            current_volume_attributes_class_name=current or None,
            modify_volume_status=status,
        ),
    )


def has(name: str, current: str = "", said: tuple[str, str] | None = None, **more: Any) -> Any:
    return naming(bound(provisioner=CSI_DRIVER, **more), name, current, said)


def asks(name: str) -> PersistentVolumeClaim:
    return naming(claim(provisioner=CSI_DRIVER), name)


def judged(*things: Any, known: Any = KNOWN, **changes: Any) -> Action:
    home = [] if any(isinstance(one, Pool) for one in things) else [pool(provisioner=CSI_DRIVER)]
    return action(*things, *home, ours_class(), attributes=known, **changes)


# --- reading -----------------------------------------------------------------------------------


def test_a_period_is_read_as_that_of_a_class() -> None:
    assert read({"undoPeriod": "1h30m"}, "gold") == Attributes(
        class_name="gold", undo_seconds=5400.0
    )
    assert read({}, "gold") == Attributes(class_name="gold")


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"undoperiod": "1h"}, "undoperiod is not known; did you mean undoPeriod?"),
        ({"undoPeriod": "1h", "iops": "5"}, "iops is not known"),
        ({"undoPeriod": "-1s"}, "must not be negative"),
        ({"undoPeriod": "soon"}, "no duration"),
        ({"undoPeriod": ""}, "no duration"),
        ({"a\nb": "1"}, r"'a\nb' is not known"),
        ({"readOps": "0"}, "must be a quantity above 0"),
        ({"readOps": "0.5"}, "must be a quantity above 0"),
        ({"readOps": "-1"}, "must be a quantity above 0"),
        ({"readOps": ""}, "must be a quantity above 0"),
        ({"writeBytesPerSecond": "1e30"}, "must be at most 9223372036854775807"),
        ({"readOps": "4294967295"}, "must be at most 4294967294"),
        ({"writeBytesPerSecond": "fast"}, "must be a quantity above 0"),
        ({"readBytesPerSec": "1Mi"}, "did you mean readBytesPerSecond?"),
    ],
)
def test_what_cannot_be_had_is_named(parameters: dict[str, str], why: str) -> None:
    with pytest.raises(BadAttributes, match=r"^parameter") as raised:
        read(parameters)
    assert why in str(raised.value)


def test_limits_are_quantities() -> None:
    found = read(
        {
            "readBytesPerSecond": "20Mi",
            "writeBytesPerSecond": "1M",
            "readOps": "1k",
            "writeOps": "max",
        }
    )
    assert found.limits == {"rbps": 20 << 20, "wbps": 10**6, "riops": 1000, "wiops": 0}
    assert found.is_limited
    assert not read({"writeOps": "max"}).is_limited


def test_of_a_former_class_limits_are_taken_away_and_nothing_else() -> None:
    former = Attributes(class_name="a", undo_seconds=5.0, read_ops=1, write_ops=2)
    wanted = Attributes(class_name="b", write_ops=3)
    assert in_place_of(former, wanted) == Attributes(class_name="b", read_ops=0, write_ops=3)
    # What was taken away once goes on being taken away: an agent may have died in between.
    again = in_place_of(in_place_of(former, wanted), SILVER)
    assert again == Attributes(class_name="silver", read_ops=0, write_ops=0)
    assert in_place_of(NONE, GOLD) == GOLD


def test_a_call_changes_what_it_names() -> None:
    former = Attributes(read_ops=1, write_ops=2)
    assert changed_by(former, Attributes(write_ops=0)) == Attributes(read_ops=1, write_ops=0)


def test_all_that_is_wrong_is_said() -> None:
    with pytest.raises(BadAttributes) as raised:
        read({"a": "1", "b": "2"})
    assert str(raised.value) == "parameter a is not known; parameter b is not known"


def test_a_class_of_another_driver_says_nothing_to_ours() -> None:
    found = VolumeAttributesClass(metadata=Meta(name="gold"), driver_name="ebs.csi.aws.com")
    assert "'ebs.csi.aws.com'" in class_facts(found).problem
    theirs = replace(found, driver_name=CSI_DRIVER, parameters={"x": "1"})
    assert class_facts(theirs).problem == "parameter x is not known"
    mine = replace(found, driver_name=CSI_DRIVER, parameters={"undoPeriod": "1m"})
    assert class_facts(mine) == AttributesClass(attributes=GOLD)


@pytest.mark.parametrize("written", [NONE, SILVER, GOLD])
def test_a_record_keeps_them(written: Attributes) -> None:
    found = record(attributes=written)
    assert decode(found.name, encode(found)) == found


def test_a_record_of_an_earlier_release_has_none() -> None:
    earlier = encode(record()).replace(b'"attributes": {}', b'"later": 1')
    assert b"attributes" not in earlier
    assert decode("pvc-1", earlier).attributes == NONE


# --- a volume that is to be made ---------------------------------------------------------------


def test_it_is_made_with_what_its_class_says() -> None:
    assert a(Make, judged(asks("gold"))).record.attributes == GOLD
    assert a(Make, judged(asks(""))).record.attributes == NONE


def test_nothing_is_made_before_the_class_is_known() -> None:
    assert "is being read" in a(Keep, judged(asks("gold"), known={})).reason


@pytest.mark.parametrize("known", [ABSENT, WRONG])
def test_nothing_is_made_without_what_the_class_says(known: Any) -> None:
    told = known["gold"]
    assert a(Reject, judged(asks("gold"), known=known)).reason == (
        f"VolumeAttributesClass gold: {told.missing or told.problem}"
    )


def test_a_local_volume_has_no_such_class() -> None:
    rejected = a(Reject, action(naming(claim(), "gold"), attributes=KNOWN))
    assert "only volumes of csi.localvolume.dev" in rejected.reason


def test_one_that_an_earlier_release_made_is_published_first() -> None:
    """Its record gets what the class says once both are bound."""
    a(Publish, judged(asks("gold"), of(csi_record(NONE, "made")), known={}))


# --- a volume that is there --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_record", "in_volume", "in_claim"),
    [
        (NONE, "", ""),
        (SILVER, "silver", "silver"),
        (GOLD, "silver", "silver"),
        (GOLD, "gold", "silver"),
        # An older agent wrote the record anew.
        (NONE, "gold", "gold"),
    ],
)
def test_it_is_modified_until_record_volume_and_claim_agree(
    in_record: Attributes, in_volume: str, in_claim: str
) -> None:
    things = (has("gold", in_claim), csi_volume(in_volume), of(csi_record(in_record)))
    modify = a(Modify, judged(*things))
    assert (modify.attributes, modify.record.attributes) == (GOLD, in_record)
    asked = classes_to_ask([things[0]], {"pvc-1": things[1]}, {"pvc-1": csi_record(in_record)})
    assert asked == {"gold"}


def test_then_nothing_is_done_or_asked() -> None:
    things = has("gold", "gold"), csi_volume("gold"), of(csi_record(GOLD))
    a(Keep, judged(*things, known={}))
    assert not classes_to_ask([things[0]], {"pvc-1": things[1]}, {"pvc-1": csi_record(GOLD)})


def test_a_claim_without_a_class_asks_for_nothing() -> None:
    a(Keep, judged(has(""), csi_volume(), of(csi_record()), known={}))
    assert not classes_to_ask([has("")], {}, {})


@pytest.mark.parametrize(("known", "status"), [(ABSENT, "Pending"), (WRONG, "Infeasible")])
def test_why_not_is_said_on_the_claim_and_then_by_events(known: Any, status: str) -> None:
    home = csi_volume("silver"), of(csi_record(SILVER))
    tell = a(TellModify, judged(has("gold", "silver"), *home, known=known))
    assert tell.status == status
    told = has("gold", "silver", ("gold", status))
    held = a(Hold, judged(told, *home, known=known))
    assert held.event == "VolumeModifyFailed"
    assert tell.reason in held.reason
    # Another target, or another state of it, is no longer true.
    for other in (("silver", status), ("gold", "InProgress")):
        a(TellModify, judged(has("gold", "silver", other), *home, known=known))


def test_a_class_that_is_not_known_yet_is_waited_for() -> None:
    a(Keep, judged(has("gold"), csi_volume(), of(csi_record()), known={}))


def test_a_claim_that_goes_back_ends_the_change() -> None:
    back = has("silver", "silver", ("gold", "Infeasible"))
    tell = a(TellModify, judged(back, csi_volume("silver"), of(csi_record(SILVER))))
    assert tell.status is None
    none = has("", "", ("gold", "Infeasible"))
    assert a(TellModify, judged(none, csi_volume(), of(csi_record()))).status is None


def refused(found: PersistentVolumeClaim, why: str) -> PersistentVolumeClaim:
    """The claim once its status says why it cannot have the size that it asks for."""
    failed = Condition(type="ControllerResizeError", status="True", message=why)
    infeasible = {"storage": "ControllerResizeInfeasible"}
    status = replace(
        found.status,
        allocated_resources=dict(found.spec.resources.requests),
        allocated_resource_statuses=infeasible,
        conditions=(*found.status.conditions, failed),
    )
    return replace(found, status=status)


def test_growing_does_not_wait_for_a_change_nor_a_change_for_growing() -> None:
    more = has("gold", size="3Gi")
    a(Grow, judged(more, csi_volume(), of(csi_record()), known=WRONG))
    full = pool(csi_record(), provisioner=CSI_DRIVER, room=0)
    # The claim's status has both; of the size it is said first.
    why = a(TellInfeasible, judged(more, csi_volume(), full)).reason
    a(Modify, judged(refused(more, why), csi_volume(), full))
    # Of two things that cannot be done, the claim is told of the size.
    told = has("gold", "", ("gold", "Infeasible"), size="3Gi")
    held = a(Hold, judged(refused(told, why), csi_volume(), full, known=WRONG))
    assert held.event == "VolumeResizeFailed"


def test_no_volume_is_modified_whose_pool_is_away() -> None:
    away = pool(csi_record(), provisioner=CSI_DRIVER, problem="not mounted")
    assert "not mounted" in a(Hold, judged(has("gold"), csi_volume(), away)).reason


def test_a_local_volume_cannot_be_modified() -> None:
    held = a(Hold, action(naming(bound(), "gold"), volume(), pool(record()), attributes=KNOWN))
    assert "only volumes of csi.localvolume.dev" in held.reason
    assert held.event == "VolumeModifyFailed"


def test_nor_is_another_claims() -> None:
    theirs = csi_record(claim_uid="other")
    a(Keep, judged(has("gold"), csi_volume(claim_uid="other"), of(theirs)))


# --- limits ------------------------------------------------------------------------------------

SLOW = Attributes(class_name="gold", write_ops=100)
LIMITED = {"gold": AttributesClass(attributes=SLOW)}


def image_pool(*records: Record, name: str = "img", **changes: Any) -> Pool:
    return pool(*records, name=name, provisioner=CSI_DRIVER, backend="image", **changes)


def image(attributes: Attributes = NONE) -> Record:
    return csi_record(attributes, backend="image", directory="")


def on_image(name: str = "") -> PersistentVolume:
    return csi_volume(name, pool="img/id-of-img")


def test_limits_take_a_device_of_its_own() -> None:
    modify = a(Modify, judged(has("gold"), on_image(), image_pool(image()), known=LIMITED))
    assert modify.attributes == SLOW
    shared = has("gold"), csi_volume(), of(csi_record())
    tell = a(TellModify, judged(*shared, known=LIMITED))
    assert tell.status == "Infeasible"
    assert "share a device with others" in tell.reason
    none = {"gold": AttributesClass(attributes=Attributes(class_name="gold", write_ops=0))}
    a(Modify, judged(*shared, known=none))


def test_limits_must_be_switched_on() -> None:
    off = {"known": LIMITED, "no_limits": "they are off"}
    tell = a(TellModify, judged(has("gold"), on_image(), image_pool(image()), **off))
    assert (tell.status, "they are off" in tell.reason) == ("Infeasible", True)
    assert "they are off" in a(Reject, judged(asks("gold"), image_pool(), **off)).reason


def test_a_limited_volume_is_made_where_it_can_be() -> None:
    plain = pool(name="big", provisioner=CSI_DRIVER, room=500 << 30)
    assert a(Make, judged(asks("gold"), plain, image_pool(), known=LIMITED)).pool.name == "img"
    back = a(GiveBack, judged(asks("gold"), plain, known=LIMITED))
    assert "share a device with others" in back.reason


def test_limits_of_the_former_class_go() -> None:
    things = has("silver", "gold"), on_image("gold"), image_pool(image(SLOW))
    assert a(Modify, judged(*things)).attributes == Attributes(class_name="silver", write_ops=0)


def test_what_is_not_as_it_should_be_is_written() -> None:
    wanted = Attributes(read_ops=5, write_ops=0)
    groups = {
        "/right": {"riops": 5, "wiops": 0, "rbps": 7},
        "/wrong": {"riops": 4, "wiops": 9, "rbps": 7},
        "/new": {},
    }
    assert to_write(wanted, groups) == [
        Write("/wrong", {"riops": 5, "wiops": 0}),
        Write("/new", {"riops": 5}),
    ]
    assert to_write(NONE, groups) == []


def test_a_target_is_told_by_the_kubelets_names() -> None:
    of = "pods/0f-1/volumes/kubernetes.io~csi/pvc-1/mount"
    block = "plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/0f-1"
    for path in (of, block):
        assert target_of(f"/k/{path}", "/k") == Target("pvc-1", "0f-1")
        assert target_of(f"/other/{path}", "/k") is None
    for path in ("pods/0f-1/volumes/kubernetes.io~csi/pvc-1", f"{of}/inside", "pods/0f-1/x"):
        assert target_of(f"/k/{path}", "/k") is None


@pytest.mark.parametrize(
    ("path", "uid"),
    [
        ("pods/0f-1/volumes/kubernetes.io~csi/pvc-1/mount", "0f-1"),
        ("pods/0f-1/volume-subpaths/pvc-1/c/0", "0f-1"),
        ("plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/0f-1", "0f-1"),
        ("plugins/kubernetes.io/csi/volumeDevices/staging/pvc-1", ""),
        ("plugins/kubernetes.io/csi/csi.localvolume.dev/0f/globalmount", ""),
        ("pods/0f-1", ""),
        ("pods/a.b/volumes", ""),
    ],
)
def test_whose_mount_it_is(path: str, uid: str) -> None:
    assert pod_of(f"/var/lib/kubelet/{path}", "/var/lib/kubelet") == uid
    assert pod_of(f"/var/lib/kubelets/{path}", "/var/lib/kubelet") == ""
    assert pod_of(f"/mnt/var/lib/kubelet/{path}", "/var/lib/kubelet") == ""


# --- calls -------------------------------------------------------------------------------------


def modified(attributes: Attributes, *things: Any, **changes: Any) -> Action:
    call = ModifyCall(key="pvc-1", attributes=attributes)
    return action(*things, ours_class(), calls=[call], **changes)


def refusal(found: Action) -> Any:
    return type(a(AnswerCall, found).refusal)


def of_call(attributes: Attributes = NONE, **changes: Any) -> Record:
    return csi_record(
        attributes, **({"backend": "image", "directory": "", "request": "x"} | changes)
    )


def test_a_call_modifies_what_a_call_made() -> None:
    made = image_pool(of_call(Attributes(read_ops=1)))
    found = a(ModifyCalled, modified(Attributes(write_ops=2), made))
    assert found.attributes == Attributes(read_ops=1, write_ops=2)
    # One that is on record may not be in force: its call may have died.
    a(ModifyCalled, modified(Attributes(read_ops=1), made))


def test_a_call_does_not_modify_a_claims_volume() -> None:
    assert refusal(modified(Attributes(read_ops=2), image_pool(image()))) is NotNow


@pytest.mark.parametrize(
    ("attributes", "known", "no_limits", "kind"),
    [
        (Attributes(undo_seconds=5.0), of_call(), "", Wrong),
        (Attributes(read_ops=2), of_call(), "they are off", Wrong),
        (Attributes(read_ops=2), of_call(backend="directory", directory="d"), "", Wrong),
        (Attributes(read_ops=2), of_call(state="removed", trash="t"), "", Unknown),
        (Attributes(read_ops=2), of_call(snapshot_of="pvc-2"), "", Unknown),
        (Attributes(read_ops=2), of_call(driver=""), "", Unknown),
    ],
)
def test_what_a_call_cannot_have(
    attributes: Attributes, known: Record, no_limits: str, kind: type[Exception]
) -> None:
    assert refusal(modified(attributes, image_pool(known), no_limits=no_limits)) is kind


def test_a_call_makes_a_limited_volume_only_where_it_can_be() -> None:
    limits = Attributes(read_ops=2)
    call = create()
    asked = dataclasses.replace(call, wanted=dataclasses.replace(call.wanted, attributes=limits))
    made = action(image_pool(), calls=[asked])
    assert a(MakeCalled, made).record.attributes == limits
    assert refusal(action(pool(provisioner=CSI_DRIVER), calls=[asked])) is Wrong
    assert refusal(action(image_pool(), calls=[asked], no_limits="they are off")) is Wrong
    period = dataclasses.replace(
        call, wanted=dataclasses.replace(call.wanted, attributes=Attributes(undo_seconds=1.0))
    )
    assert refusal(action(image_pool(), calls=[period])) is Wrong


# --- the period --------------------------------------------------------------------------------


def released(
    own: float | None, since: str | None = None, until: str | None = None, **wish: Any
) -> Any:
    """What is decided about a volume whose claim is gone; `own` is what its attributes say."""
    kept = csi_record(Attributes(class_name="gold", undo_seconds=own))
    found = csi_volume("gold", phase="Released", since=since, until=until)
    return action(found, of(kept), ours_class(**wish), **unwanted(1))


def test_its_own_period_counts_and_not_its_classs() -> None:
    assert a(MarkReleased, released(60.0)).period == 60.0
    assert a(MarkReleased, released(60.0, undo_seconds=3600.0)).period == 60.0
    a(Delete, released(0.0, undo_seconds=3600.0))
    assert a(MarkReleased, released(None, undo_seconds=3600.0)).period == 3600.0


def test_it_holds_whatever_becomes_of_its_class() -> None:
    found = csi_volume("gold", phase="Released")
    of_none = action(found, of(csi_record(GOLD)), classes={}, **unwanted(1))
    assert a(MarkReleased, of_none).period == 60.0


def test_what_was_promised_is_kept() -> None:
    """A minute ago, until in a minute, by other attributes."""
    held = released(1.0, "2027-01-15T07:59:00Z", "2027-01-15T08:01:00Z")
    assert a(Hold, held).again_seconds == 60.0
    a(Delete, released(1.0, "2027-01-15T07:59:00Z", "2027-01-15T07:59:30Z"))


@pytest.mark.parametrize(
    ("found", "one"),
    [
        ((), csi_volume()),
        ((csi_record(),), csi_volume(pool=None)),
        ((csi_record(),), csi_volume(claim_uid="another")),
        ((csi_record(state="made"),), csi_volume()),
        ((csi_record(state="removed", trash="pvc-1.0"),), csi_volume()),
    ],
)
def test_only_a_complete_volume_of_that_claim_is_changed(
    found: tuple[Record, ...], one: PersistentVolume
) -> None:
    there = pool(*found, provisioner=CSI_DRIVER)
    known = facts(one, has("gold"), there, ours_class(), attributes=KNOWN)
    assert changed(World(known), has("gold"), one) is None


def test_nothing_is_recorded_in_a_pool_that_is_away() -> None:
    away = pool(csi_record(), provisioner=CSI_DRIVER, problem="not mounted")
    known = facts(csi_volume(), has("gold"), away, ours_class(), attributes=KNOWN)
    held = changed(World(known), has("gold"), csi_volume())
    assert "not mounted" in a(Hold, held).reason
