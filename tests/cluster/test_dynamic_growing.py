"""A claim that asks for more: its volume grows and all say so, or it is told why not."""

import pytest

from tests.cluster.support_dynamic import Claim, DynamicLab
from tests.cluster.support_frozen import frozen
from tests.host.support_devices import immutable
from tests.suite.api import CLAIMS, MERGE
from tests.suite.conditions import conditions_of
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def _has(lab: DynamicLab, claim: Claim) -> str:
    found = lab.read_claim(claim)
    assert found is not None
    return str(found["status"].get("capacity", {}).get("storage", ""))


def _conditions(lab: DynamicLab, claim: Claim) -> dict[str, str]:
    found = lab.read_claim(claim)
    assert found is not None
    return {one["type"]: one["status"] for one in conditions_of(found)}


def _allocated(lab: DynamicLab, claim: Claim) -> tuple[str, str]:
    """To what the claim says that it grows, and how far that is."""
    found = lab.read_claim(claim)
    assert found is not None
    size = found["status"].get("allocatedResources", {}).get("storage", "")
    return size, found["status"].get("allocatedResourceStatuses", {}).get("storage", "")


def _capacity(lab: DynamicLab, claim: Claim) -> str:
    volume = lab.volume_of(claim)
    assert volume is not None
    return str(volume["spec"]["capacity"]["storage"])


def test_claim_and_volume_tell_the_new_size(dynamic: DynamicLab) -> None:
    dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="8Mi")
    volume = dynamic.made(claim)
    dynamic.grow(claim, "16Mi")
    dynamic.until(lambda: _has(dynamic, claim), lambda size: size == "16Mi")
    grown = dynamic.volume(volume["metadata"]["name"])
    assert grown is not None
    assert grown["spec"]["capacity"] == {"storage": "16Mi"}
    dynamic.claim_event(claim, "Resizing")
    dynamic.claim_event(claim, "VolumeResizeSuccessful")
    found = dynamic.read_claim(claim)
    assert found is not None
    assert not conditions_of(found)
    dynamic.settle()
    labels = {"pool": "fast", "persistentvolume": volume["metadata"]["name"], "claim": ""}
    assert dynamic.metric("localvolume_volume_size_bytes", **labels) == 16 * MIB


def _refused(lab: DynamicLab, claim: Claim) -> str:
    """Why the claim's status says that its volume cannot have the size, "" if it does not."""
    found = lab.read_claim(claim)
    assert found is not None
    said = [one for one in conditions_of(found) if one["type"] == "ControllerResizeError"]
    return said[0]["message"] if said else ""


def test_no_room_is_said_and_changes_nothing(dynamic: DynamicLab) -> None:
    dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="8Mi")
    volume = dynamic.made(claim)
    dynamic.grow(claim, "100Gi")
    dynamic.claim_event(claim, "VolumeResizeFailed", "of room left")
    kept = dynamic.volume(volume["metadata"]["name"])
    assert kept is not None
    assert kept["spec"]["capacity"] == {"storage": "8Mi"}
    assert _has(dynamic, claim) == "8Mi"
    # As external-resizer says it, for tools. That is there for good, and Events for an hour.
    assert _allocated(dynamic, claim) == ("100Gi", "ControllerResizeInfeasible")
    assert _conditions(dynamic, claim) == {"ControllerResizeError": "True"}
    assert "of room left" in _refused(dynamic, claim)


def test_who_asked_for_too_much_asks_for_less(dynamic: DynamicLab) -> None:
    """Kubernetes lets a request that was never met be lowered (RecoverVolumeExpansionFailure),
    down to more than what the volume has."""
    dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="8Mi")
    dynamic.made(claim)
    dynamic.grow(claim, "100Gi")
    dynamic.until(
        lambda: _allocated(dynamic, claim),
        lambda found: found == ("100Gi", "ControllerResizeInfeasible"),
    )
    # Still too much: what is said goes with what is asked for.
    dynamic.grow(claim, "50Gi")
    dynamic.until(
        lambda: _allocated(dynamic, claim),
        lambda found: found == ("50Gi", "ControllerResizeInfeasible"),
    )
    dynamic.grow(claim, "16Mi")
    dynamic.until(lambda: _has(dynamic, claim), lambda size: size == "16Mi")
    assert _capacity(dynamic, claim) == "16Mi"
    assert _allocated(dynamic, claim) == ("16Mi", "")
    assert _conditions(dynamic, claim) == {}


def test_what_is_refused_is_said_once_and_done_once_there_is_room(dynamic: DynamicLab) -> None:
    dynamic.pool(size=128 * MIB, undoPeriod="0s")
    cls = dynamic.storage_class()
    dynamic.start()
    claim, other = dynamic.claim(cls, size="8Mi"), dynamic.claim(cls, size="48Mi")
    dynamic.made(claim)
    dynamic.made(other)
    dynamic.grow(claim, "64Mi")
    dynamic.until(lambda: _refused(dynamic, claim), bool)
    dynamic.settle()
    before = dynamic.read_claim(claim)
    dynamic.settle()
    assert dynamic.read_claim(claim) == before
    dynamic.delete(other)
    dynamic.until(lambda: _has(dynamic, claim), lambda size: size == "64Mi")
    assert _allocated(dynamic, claim) == ("64Mi", "")
    assert _conditions(dynamic, claim) == {}


def test_what_the_status_may_not_say_an_event_does(dynamic: DynamicLab) -> None:
    dynamic.hurry_dynamic(first_wait=0.2, longest_wait=2.0)
    dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="8Mi")
    dynamic.made(claim)
    dynamic.claim_event(claim, "ProvisioningSucceeded")
    # That is in its status too, and comes after the volume's.
    dynamic.until(
        lambda: dynamic.read_claim(claim),
        lambda found: found and found["status"]["phase"] == "Bound",
    )
    policy = dynamic.forbid("UPDATE", resource="persistentvolumeclaims/status")
    path = f"{CLAIMS}/{claim['metadata']['name']}/status"
    probe = {"status": {"conditions": [{"type": "Probe", "status": "True"}]}}
    dynamic.until(lambda: dynamic.refuses("PATCH", path, probe), bool)
    dynamic.grow(claim, "100Gi")
    event = dynamic.claim_event(claim, "VolumeResizeFailed", "status does not say so yet")
    assert "of room left" in event["message"]
    assert _refused(dynamic, claim) == ""
    dynamic.plane.request("DELETE", policy)
    dynamic.until(lambda: _refused(dynamic, claim), bool)


def test_conditions_of_others_stay(dynamic: DynamicLab) -> None:
    """Kubernetes 1.37 keeps one on each claim, whether a pod uses it."""
    dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="8Mi")
    dynamic.made(claim)
    dynamic.claim_event(claim, "ProvisioningSucceeded")
    theirs = {
        "type": "Unused",
        "status": "True",
        "reason": "NoPods",
        "message": "no pod uses it",
        "lastTransitionTime": "2026-11-27T10:00:00Z",
        "lastProbeTime": "2026-11-27T10:00:01Z",
    }
    path = f"{CLAIMS}/{claim['metadata']['name']}/status"
    body = {"status": {"conditions": [theirs]}}
    dynamic.plane.request("PATCH", path, body, content_type=MERGE)
    dynamic.grow(claim, "100Gi")
    dynamic.until(lambda: _refused(dynamic, claim), bool)
    dynamic.grow(claim, "16Mi")
    dynamic.until(lambda: _has(dynamic, claim), lambda size: size == "16Mi")
    found = dynamic.read_claim(claim)
    assert found is not None
    assert found["status"]["conditions"] == [theirs]


def test_the_claim_says_that_it_is_growing_as_long_as_it_is(dynamic: DynamicLab) -> None:
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="8Mi")
    dynamic.made(claim)
    # Said when the last of its making is written, which must not wait for the disk too.
    dynamic.claim_event(claim, "ProvisioningSucceeded")
    with frozen(pool.directory):
        dynamic.grow(claim, "16Mi")
        dynamic.until(
            lambda: _conditions(dynamic, claim), lambda found: found == {"Resizing": "True"}
        )
        assert (_has(dynamic, claim), _capacity(dynamic, claim)) == ("8Mi", "8Mi")
        assert _allocated(dynamic, claim) == ("16Mi", "ControllerResizeInProgress")
    dynamic.until(lambda: _has(dynamic, claim), lambda size: size == "16Mi")
    assert _capacity(dynamic, claim) == "16Mi"
    assert _conditions(dynamic, claim) == {}
    # As external-resizer leaves it, for quotas.
    assert _allocated(dynamic, claim) == ("16Mi", "")


def test_what_fails_half_way_has_its_old_size_and_is_tried_again(dynamic: DynamicLab) -> None:
    """There was room, and then the pool took no writing."""
    dynamic.hurry_dynamic(first_wait=0.2, longest_wait=2.0)
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="8Mi")
    volume = dynamic.made(claim)
    dynamic.claim_event(claim, "ProvisioningSucceeded")
    name = volume["metadata"]["name"]
    with immutable(pool.directory / ".localvolume" / "records"):
        dynamic.grow(claim, "16Mi")
        event = dynamic.claim_event(claim, "VolumeResizeFailed", f"volume {name} cannot grow")
        assert event["type"] == "Warning"
        assert "it is tried again" in event["message"]
        dynamic.settle()
        assert (_has(dynamic, claim), _capacity(dynamic, claim)) == ("8Mi", "8Mi")
        # As external-resizer leaves it: it goes on trying.
        assert _conditions(dynamic, claim) == {"Resizing": "True"}
        assert _allocated(dynamic, claim) == ("16Mi", "ControllerResizeInProgress")
        labels = {"pool": "fast", "persistentvolume": name, "claim": ""}
        assert dynamic.metric("localvolume_volume_size_bytes", **labels) == 8 * MIB
    dynamic.until(lambda: _has(dynamic, claim), lambda size: size == "16Mi")
    assert _capacity(dynamic, claim) == "16Mi"
    assert _conditions(dynamic, claim) == {}


def test_an_agent_that_died_in_between_tells_it_later(dynamic: DynamicLab) -> None:
    dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="8Mi")
    volume = dynamic.made(claim)
    policy = dynamic.forbid("UPDATE")
    name = volume["metadata"]["name"]
    probe = {"metadata": {"labels": {"probe": "x"}}}
    path = f"/api/v1/persistentvolumes/{name}"
    dynamic.until(lambda: dynamic.refuses("PATCH", path, probe), bool)
    dynamic.grow(claim, "16Mi")
    dynamic.until(lambda: dynamic.logged("grown to 16Mi"), bool)
    dynamic.stop()
    dynamic.plane.request("DELETE", policy)
    dynamic.until(lambda: not dynamic.refuses("PATCH", path, probe), bool)
    dynamic.start()
    dynamic.until(lambda: _has(dynamic, claim), lambda size: size == "16Mi")
