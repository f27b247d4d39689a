"""What the API server or the pool refuses: said on the object, counted, and done once it may be."""

import pytest

from tests.cluster.support_dynamic import DynamicLab, MadePool, Volume
from tests.host.support_devices import bind
from tests.suite.api import VOLUMES
from tests.suite.names import FINALIZER

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

HAS_OURS = (
    f"has(object.metadata.finalizers) && object.metadata.finalizers.exists(f, f == '{FINALIZER}')"
)


@pytest.fixture(autouse=True)
def impatience(dynamic: DynamicLab) -> None:
    """Attempts follow each other soon."""
    dynamic.hurry_dynamic(first_wait=0.2, longest_wait=2.0)


def _count(lab: DynamicLab, name: str, cls: str) -> float:
    labels = {"class": cls, **({"source": ""} if name.startswith("persistentvolumeclaim") else {})}
    return lab.metric(f"controller_{name}_total", **labels) or 0


def _removed(lab: DynamicLab, cls: str) -> float:
    return _count(lab, "persistentvolume_delete", cls)


def _not_removed(lab: DynamicLab, cls: str) -> float:
    return _count(lab, "persistentvolume_delete_failed", cls)


def _used(lab: DynamicLab) -> tuple[MadePool, str, Volume]:
    """A pool, its class, and a volume of it in which a tenant has written."""
    pool = lab.pool()
    cls = lab.storage_class()
    lab.start()
    claim = lab.claim(cls)
    volume = lab.made(claim)
    # The last that is written about it; from then on nothing is under way.
    lab.claim_event(claim, "ProvisioningSucceeded")
    (lab.path_of(volume) / "rows").write_text("tenant")
    return pool, cls, volume


def _release(lab: DynamicLab, volume: Volume) -> None:
    lab.delete_claim(volume["spec"]["claimRef"]["name"])


def _fails(lab: DynamicLab, cls: str, volume: Volume, why: str) -> Volume:
    """It is told on the volume and counted for each attempt; returns the object, which stays."""
    name = volume["metadata"]["name"]
    event = lab.event(name, "VolumeFailedDelete", why)
    assert event["type"] == "Warning"
    assert "it is tried again" in event["message"]
    before = _not_removed(lab, cls)
    assert before >= 1
    lab.until(lambda: _not_removed(lab, cls), lambda count: count >= before + 2)
    assert _removed(lab, cls) == 0
    found = lab.volume(name)
    assert found is not None
    assert found["metadata"]["uid"] == volume["metadata"]["uid"]
    assert FINALIZER in found["metadata"]["finalizers"]
    return found


def _goes(lab: DynamicLab, pool: MadePool, cls: str, volume: Volume) -> None:
    """Nothing is left of it, and it is counted as one that was removed."""
    lab.gone(volume)
    assert not lab.path_of(volume).exists()
    lab.until(lambda: (pool.trash(), pool.records()), lambda left: left == ([], []))
    lab.until(lambda: _removed(lab, cls), lambda count: count == 1)


def test_while_the_object_may_not_be_created_there_is_one_volume(dynamic: DynamicLab) -> None:
    """L12: no PersistentVolume, and one volume however often it is tried."""
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    policy = dynamic.forbid_creation()
    claim = dynamic.claim(cls)
    event = dynamic.claim_event(claim, "ProvisioningFailed", "not now")
    assert event["type"] == "Warning"
    assert event["message"].startswith("failed to provision volume: ")
    assert "it is tried again" in event["message"]

    def failed() -> float:
        return _count(dynamic, "persistentvolumeclaim_provision_failed", cls)

    before = failed()
    assert before >= 1
    dynamic.until(failed, lambda count: count >= before + 2)
    assert _count(dynamic, "persistentvolumeclaim_provision", cls) == 0
    assert dynamic.volumes() == []
    assert len(pool.inside()) == 1
    dynamic.plane.request("DELETE", policy)
    volume = dynamic.made(claim)
    dynamic.claim_event(claim, "ProvisioningSucceeded")
    dynamic.until(
        lambda: _count(dynamic, "persistentvolumeclaim_provision", cls), lambda count: count == 1
    )
    assert pool.inside() == [volume["metadata"]["name"]]


def test_while_the_object_may_not_be_deleted_the_data_stays(dynamic: DynamicLab) -> None:
    """L13, L38: deleting it is asked for before anything is removed, so the data stays too."""
    pool, cls, volume = _used(dynamic)
    policy = dynamic.forbid("DELETE")
    path = f"{VOLUMES}/{volume['metadata']['name']}"
    dynamic.until(lambda: dynamic.refuses("DELETE", path), bool)
    _release(dynamic, volume)
    found = _fails(dynamic, cls, volume, "not now")
    assert "deletionTimestamp" not in found["metadata"]
    assert (dynamic.path_of(volume) / "rows").read_text() == "tenant"
    dynamic.plane.request("DELETE", policy)
    _goes(dynamic, pool, cls, volume)


def test_a_removed_volume_is_purged_only_once_its_object_is_gone(dynamic: DynamicLab) -> None:
    """L13, L38: the volume is out of reach by then; it is purged only once the object is gone."""
    pool, cls, volume = _used(dynamic)
    policy = dynamic.forbid("UPDATE", HAS_OURS)
    path = f"{VOLUMES}/{volume['metadata']['name']}"
    freed = {"metadata": {"finalizers": None}}
    dynamic.until(lambda: dynamic.refuses("PATCH", path, freed), bool)
    _release(dynamic, volume)
    found = _fails(dynamic, cls, volume, "not now")
    assert "deletionTimestamp" in found["metadata"]
    assert not dynamic.path_of(volume).exists()
    (trash,) = pool.trash()
    assert (pool.directory / ".localvolume" / "trash" / trash / "rows").read_text() == "tenant"
    dynamic.plane.request("DELETE", policy)
    _goes(dynamic, pool, cls, volume)


def test_a_volume_that_a_pod_has_mounted_is_not_removed(dynamic: DynamicLab) -> None:
    """L11, L37: a pod still has it mounted."""
    pool, cls, volume = _used(dynamic)
    with bind(dynamic.path_of(volume)) as pod:
        _release(dynamic, volume)
        _fails(dynamic, cls, volume, "in use")
        assert (pod / "rows").read_text() == "tenant"
        assert pool.trash() == []
        assert pool.inside() == [volume["metadata"]["name"]]
    _goes(dynamic, pool, cls, volume)
