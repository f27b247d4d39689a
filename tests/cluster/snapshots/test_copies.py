"""Claims for clones and restores: made where the content is, at once, and pods follow.

From a snapshot's claim to a pod on its node: scheduler, controllers and agents, all real.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.volumes.capacity import quantity
from localvolume.volumes.snapshots import MODE_CHANGE
from tests.cluster.support_controller import Ground
from tests.cluster.support_copies import CLONING, LARGE, CopyCluster, copy_cluster_for
from tests.cluster.support_objects import Objects
from tests.cluster.support_snapshots import Snapshot, handle_of
from tests.host.support_devices import bind, command, mounted
from tests.suite.api import CLAIMS
from tests.suite.units import MIB

pytestmark = [
    pytest.mark.needs("root", "loop", "btrfs", "controlplane", "snapshots"),
    pytest.mark.usefixtures("controller"),
]

FAILED = "ProvisioningFailed"


@pytest.fixture
def cluster(ground: Ground, objects: Objects, unique: str, tmp_path: Path) -> Iterator[CopyCluster]:
    with copy_cluster_for(ground, objects, unique, tmp_path) as cluster:
        yield cluster


def test_a_restore_is_made_before_any_pod_and_the_pod_follows(cluster: CopyCluster) -> None:
    """Though the other node has more room, and the pod would rather be there; twice, the second
    time after the volume that was cut is gone."""
    a, b = cluster.node("a"), cluster.node("b", LARGE)
    cls = cluster.storage_class()
    cluster.start()
    cluster.heeded(cls)
    source = cluster.used_on(a, cls, 16 * MIB)
    where = cluster.is_on(source, a)
    (where / "file").write_text("before")
    snapshot = a.ready(a.snapshot(source))
    (where / "file").write_text("after")
    restored = cluster.copy(cls, 32 * MIB, snapshot)
    assert (cluster.is_on(restored, a) / "file").read_text() == "before"
    volume = cluster.bound(restored)
    assert volume["spec"]["capacity"]["storage"] == "32Mi"
    pod = cluster.pod(restored, rather=b.node)
    cluster.is_on(restored, a, pod)

    old = cluster.bound(source)
    cluster.remove_claim(source)
    a.gone(old)
    again = cluster.copy(cls, 16 * MIB, snapshot)
    assert (cluster.is_on(again, a) / "file").read_text() == "before"
    assert cluster.events(again, FAILED) == []


@pytest.mark.needs("xfs")
def test_block_volumes_are_restored_and_cloned(cluster: CopyCluster) -> None:
    """Every byte of them; and none is made a filesystem's, whatever is asked for."""
    cluster.images = True
    a, _ = cluster.node("a", LARGE), cluster.node("b", LARGE)
    cls = cluster.storage_class()
    cluster.start()
    cluster.heeded(cls)
    block = {"volumeMode": "Block"}
    source = cluster.used_on(a, cls, 16 * MIB, **block)
    where = cluster.is_on(source, a)
    first, second = os.urandom(16 * MIB), os.urandom(16 * MIB)
    where.write_bytes(first)
    snapshot = a.ready(a.snapshot(source))
    where.write_bytes(second)
    restored = cluster.copy(cls, 32 * MIB, snapshot, **block)
    cloned = cluster.copy(cls, 16 * MIB, source, **block)
    found = cluster.is_on(restored, a).read_bytes()
    assert (found[: len(first)], found[len(first) :]) == (first, bytes(16 * MIB))
    assert cluster.is_on(cloned, a).read_bytes() == second
    other = cluster.copy(cls, 16 * MIB, snapshot)
    cluster.event(other, FAILED, "is of volumeMode Block, and Filesystem is asked for")


@pytest.mark.needs("xfs")
def test_a_filesystem_is_restored_as_blocks_once_an_administrator_allows_it(
    cluster: CopyCluster,
) -> None:
    """As backup tools do; the object says how large the device is. A clone never is."""
    cluster.images = True
    a, _ = cluster.node("a", LARGE), cluster.node("b", LARGE)
    cls = cluster.storage_class()
    cluster.start()
    cluster.heeded(cls)
    block = {"volumeMode": "Block"}
    source = cluster.used_on(a, cls, 16 * MIB)
    where = cluster.is_on(source, a)
    with mounted(loop_of(where)) as inside:
        (inside / "file").write_text("tenant data")
    snapshot = a.ready(a.snapshot(source))
    content = a.content_of(snapshot)
    restored = cluster.copy(cls, 16 * MIB, snapshot, **block)
    cluster.event(restored, FAILED, f'{MODE_CHANGE}: "true" of its VolumeSnapshotContent allows')
    cluster.pending(restored)
    assert content is not None
    a.patch_content(content, {"metadata": {"annotations": {MODE_CHANGE: "true"}}})
    place = cluster.is_on(restored, a)
    assert place.read_bytes() == (where.parent / f"{handle_of(content)}.img").read_bytes()
    assert content_of(place) == "tenant data"
    spec = cluster.bound(restored)["spec"]
    assert spec["volumeMode"] == "Block"
    size = place.stat().st_size
    assert spec["capacity"]["storage"] == quantity(size)
    assert size > 16 * MIB

    cloned = cluster.copy(cls, 16 * MIB, source, **block)
    cluster.event(cloned, FAILED, "is of volumeMode Filesystem, and Block is asked for")
    a.patch_content(content, {"metadata": {"annotations": {MODE_CHANGE: None}}})
    late = cluster.copy(cls, 16 * MIB, snapshot, **block)
    cluster.event(late, FAILED, f'{MODE_CHANGE}: "true" of its VolumeSnapshotContent allows')


def test_where_blocks_cannot_be_shared_all_is_copied_if_the_classes_say_so(
    cluster: CopyCluster,
) -> None:
    """Also while the volume is in use, as it is at one moment; without the classes nothing is."""
    cluster.images, cluster.images_on = True, "ext4"
    a, _ = cluster.node("a", LARGE), cluster.node("b", LARGE)
    plain = cluster.storage_class()
    allows = cluster.storage_class("allows", parameters={"fullCopies": "allowed"})
    cluster.start()
    cluster.heeded(plain)
    source = cluster.used_on(a, plain, 64 * MIB)
    with mounted(loop_of(cluster.is_on(source, a))) as where:
        (where / "file").write_text("before")
        refused = a.snapshot(source)
        a.failing(refused, "parameter fullCopies: allowed")
        snapshot = a.ready(
            a.snapshot(source, a.snapshot_class(parameters={"fullCopies": "allowed"}))
        )
        (where / "file").write_text("after")
        cloned = cluster.copy(allows, 64 * MIB, source)
        assert content_of(cluster.is_on(cloned, a)) == "after"
    restored = cluster.copy(allows, 128 * MIB, snapshot)
    assert content_of(cluster.is_on(restored, a)) == "before"
    for one in (source, snapshot):
        waits = cluster.copy(plain, 64 * MIB, one)
        cluster.event(waits, FAILED, "parameter fullCopies: allowed")


@pytest.mark.needs("xfs")
def test_a_directory_is_cloned_once_nobody_uses_it(cluster: CopyCluster, tmp_path: Path) -> None:
    cluster.directories = True
    a, _ = cluster.node("a"), cluster.node("b", LARGE)
    cls = cluster.storage_class()
    cluster.start()
    cluster.heeded(cls)
    source = cluster.used_on(a, cls, 16 * MIB)
    where = cluster.is_on(source, a)
    (where / "file").write_text("tenant data")
    pods = tmp_path / "pods"
    pods.mkdir()
    with bind(where, pods):
        cloned = cluster.copy(cls, 16 * MIB, source)
        cluster.event(cloned, FAILED, "only cloned while nobody uses it")
        (pods / "file").write_text("the last word")
    assert (cluster.is_on(cloned, a) / "file").read_text() == "the last word"
    a.failing(a.snapshot(source), "a directory has no content of one moment")


def loop_of(image: Path) -> str:
    return command("losetup", "--noheadings", "--output", "NAME", "-j", image).strip()


def content_of(image: Path) -> str:
    with mounted(loop_of(image), options="ro") as where:
        return (where / "file").read_text()


def test_a_pod_that_came_with_its_claim_is_moved_to_the_content(cluster: CopyCluster) -> None:
    """The scheduler, which knows nothing of it, may have chosen the other node by then."""
    a, b = cluster.node("a"), cluster.node("b", LARGE)
    cls = cluster.storage_class()
    cluster.start()
    cluster.heeded(cls)
    source = cluster.used_on(a, cls, 16 * MIB)
    snapshot = a.ready(a.snapshot(source))
    # As if no agent had been fast enough.
    a.stop()
    restored = cluster.copy(cls, 16 * MIB, snapshot)
    pod = cluster.pod(restored, rather=b.node)
    cluster.until(lambda: cluster.selected(restored), lambda node: node == b.node)
    cluster.until(lambda: cluster.label(restored), lambda label: label == a.node)
    a.serve()
    cluster.is_on(restored, a, pod)


def test_a_clone_of_a_volume_that_is_being_written(cluster: CopyCluster) -> None:
    """It has all that was written before, and what is synchronized in the order in which it was;
    its source stays meanwhile."""
    a, _ = cluster.node("a"), cluster.node("b")
    cls = cluster.storage_class()
    cluster.start()
    source = cluster.used_on(a, cls, 64 * MIB)
    where = cluster.is_on(source, a)
    ended = threading.Event()
    begun = threading.Event()

    def write() -> None:
        count = 0
        while not ended.is_set():
            count += 1
            with open(where / "never", "a") as file:
                file.write(f"{count}\n")
            for name in ("first", "second"):
                with open(where / name, "a") as file:
                    file.write(f"{count}\n")
                    file.flush()
                    os.fsync(file.fileno())
            if count > 20:
                begun.set()

    def written() -> int:
        return len((where / "never").read_text().splitlines())

    writer = threading.Thread(target=write)
    writer.start()
    try:
        cluster.until(begun.is_set, bool)
        clones = [cluster.copy(cls, 64 * MIB, source) for _ in range(3)]
        places = [cluster.is_on(clone, a) for clone in clones]
        # The writer goes on, however long it was at what it did meanwhile.
        known = written()
        cluster.until(written, lambda count: count > known)
    finally:
        ended.set()
        writer.join()
    for place in places:
        never, first, second = (
            (place / name).read_text().split() for name in ("never", "first", "second")
        )
        for found in (never, first):
            assert found == [str(number) for number in range(1, len(found) + 1)]
            assert 20 < len(found) < len((where / "never").read_text().split())
        assert second in (first, first[:-1])
    cluster.until(lambda: cluster.finalizers(source), lambda names: CLONING not in names)


def test_what_is_lacking_is_said_and_waited_for(cluster: CopyCluster) -> None:
    """A snapshot that is not there yet; then room on its node, however much another has."""
    a, _ = cluster.node("a"), cluster.node("b", LARGE)
    cls = cluster.storage_class()
    cluster.start()
    room = cluster.heeded(cls)[a.node]
    source = cluster.used_on(a, cls, 16 * MIB)
    name = f"{a.unique}-late"
    late: Snapshot = {"metadata": {"name": name}, "spec": {"source": {}}}
    late["spec"]["source"] = {"persistentVolumeClaimName": source["metadata"]["name"]}
    large = cluster.copy(cls, room, late)
    cluster.event(large, FAILED, f"VolumeSnapshot default/{name}, whose content it asks for, does")
    assert cluster.label(large) is None
    a.make_snapshot(name, volumeSnapshotClassName=a.snapshot_class(), **late["spec"])
    said = cluster.event(large, FAILED, "the content that it asks for is there alone")
    assert f"node {a.node}: pool fast: " in said["message"]
    assert cluster.label(large) == a.node, "it is not given back"
    cluster.pending(large)
    small = cluster.copy(cls, 8 * MIB, late)
    cluster.event(small, FAILED, "a volume with its content needs as much: 8Mi is asked for")
    fits = cluster.copy(cls, 16 * MIB, late)
    cluster.is_on(fits, a)


def test_a_claim_is_kept_while_it_is_cloned(cluster: CopyCluster) -> None:
    """And the finalizer goes though the agent that added it died."""
    (a,) = (cluster.node("a"),)
    cls = cluster.storage_class()
    cluster.start()
    source = cluster.used_on(a, cls, 16 * MIB)
    (cluster.is_on(source, a) / "file").write_text("content")
    a.stop()
    path = f"{CLAIMS}/{source['metadata']['name']}"
    kept = [*cluster.finalizers(source), CLONING]
    cluster.ground.patch(path, {"metadata": {"finalizers": kept}})
    a.serve()
    cluster.until(lambda: cluster.finalizers(source), lambda names: CLONING not in names)
    clone = cluster.copy(cls, 16 * MIB, source)
    assert (cluster.is_on(clone, a) / "file").read_text() == "content"
    cluster.until(lambda: cluster.finalizers(source), lambda names: CLONING not in names)
    old = cluster.bound(source)
    cluster.remove_claim(source)
    a.gone(old)
    assert (cluster.is_on(clone, a) / "file").read_text() == "content"
    second = cluster.copy(cls, 16 * MIB, source)
    cluster.event(second, FAILED, "whose content it asks for, does not exist")
