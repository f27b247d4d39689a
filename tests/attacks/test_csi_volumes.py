"""What a tenant, a person with a PersistentVolume, or a backup of etcd can do to CSI volumes: none
is destroyed that is still somebody's, none is handed on with content, and no call lies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from tests.attacks.support_csi import bound, named, stock_volume
from tests.attacks.support_etcd import Backup
from tests.cluster.support_csi import CsiLab
from tests.cluster.support_csicalls import Caller
from tests.cluster.support_dynamic import Claim, MadePool, Volume
from tests.cluster.support_loops import detach_all, links_of
from tests.host.support_devices import unmount
from tests.host.support_mounts import MS_BIND, mount
from tests.suite.names import CSI
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

WRITTEN = "what the tenant has written"
REFUSED = Status.FAILED_PRECONDITION


@pytest.fixture
def caller(csi: CsiLab) -> Caller:
    return Caller(csi.kubelet)


@pytest.fixture(params=["image", "directory"])
def pool(csi: CsiLab, request: pytest.FixtureRequest) -> MadePool:
    """For what is asked of a device and of a directory alike."""
    return csi.csi_pool(backend=request.param, size=256 * MIB)


@pytest.fixture
def images(csi: CsiLab) -> MadePool:
    return csi.csi_pool(backend="image", size=256 * MIB)


def claimed(lab: CsiLab, **parameters: str) -> tuple[Claim, Volume, str]:
    """A claim of the driver's with its volume and that one's handle."""
    cls = lab.storage_class(provisioner=CSI, parameters=parameters)
    claim = lab.claim(cls, size="32Mi")
    volume = lab.made(claim)
    return claim, volume, volume["metadata"]["name"]


def write(place: Path) -> None:
    (place / "file").write_text(WRITTEN)
    fd = os.open(place, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def reads(place: Path) -> str:
    return (place / "file").read_text()


def link_of(pool: MadePool, handle: str) -> Path:
    links = links_of(pool.directory)
    assert links is not None
    return links / handle


def all_gone(lab: CsiLab, pool: MadePool) -> None:
    lab.until(lambda: (pool.records(), pool.trash()), lambda left: left == ([], []))


# --- whose it is ---------------------------------------------------------------------------------


def test_a_call_removes_no_volume_of_a_claim(csi: CsiLab, caller: Caller, pool: MadePool) -> None:
    csi.serve_here()
    claim, volume, handle = claimed(csi)
    write(caller.use(handle))
    assert caller.refused("DeleteVolume", volume_id=handle)[0] is REFUSED
    # Nor by its claim's deletion, which a call must not be able to hurry.
    caller.leave(handle)
    assert caller.refused("DeleteVolume", volume_id=handle)[0] is REFUSED
    # A call that asks for one of that name finds it, and cannot have it removed either.
    assert caller.create(handle) == handle
    assert caller.refused("DeleteVolume", volume_id=handle)[0] is REFUSED
    assert reads(caller.use(handle)) == WRITTEN
    caller.leave(handle)
    csi.delete(claim)
    csi.gone(volume)
    all_gone(csi, pool)


def test_a_call_removes_no_volume_that_a_claim_has_by_another_object(
    csi: CsiLab, caller: Caller, images: MadePool
) -> None:
    """As where a person has made the object anew under a name of their own."""
    csi.serve_here()
    handle = caller.create("pvc-of-a-call")
    write(caller.use(handle))
    caller.leave(handle)
    name = stock_volume(csi, handle, f"{csi.unique}-by-hand")
    named(csi, name)
    bound(csi, name)
    status, why = caller.refused("DeleteVolume", volume_id=handle)
    assert status is REFUSED
    assert name in why
    assert reads(caller.use(handle)) == WRITTEN


def test_no_empty_volume_is_made_of_the_handle_of_one_that_is_away(
    csi: CsiLab, caller: Caller, images: MadePool
) -> None:
    csi.serve_here()
    name = stock_volume(csi, "pvc-elsewhere", f"{csi.unique}-by-hand")
    csi.settle()
    status, why = caller.refused("CreateVolume", **caller.wanted("pvc-elsewhere"))
    assert status is Status.UNAVAILABLE
    assert name in why
    assert images.records() == []


def test_a_claim_that_names_anothers_volume_neither_gets_it_nor_keeps_it(
    csi: CsiLab, caller: Caller, pool: MadePool
) -> None:
    csi.serve_here()
    claim, volume, handle = claimed(csi)
    thief = named(csi, handle, cls=claim["spec"]["storageClassName"])
    write(caller.use(handle))
    caller.leave(handle)
    csi.delete(claim)
    csi.gone(volume)
    all_gone(csi, pool)
    found = csi.objects.get(f"/api/v1/namespaces/default/persistentvolumeclaims/{thief}")
    assert found["status"]["phase"] in ("Pending", "Lost")
    assert caller.refused("NodeStageVolume", **caller.to_stage(handle))[0] is Status.NOT_FOUND


def test_a_pod_that_says_it_has_a_volume_of_its_own_gets_nothing(
    csi: CsiLab, caller: Caller, images: MadePool
) -> None:
    """An inline volume: who writes the pod writes the attributes, and there is no claim."""
    csi.serve_here()
    _, _, handle = claimed(csi)
    inline = f"csi-{'0123456789abcdef' * 4}"
    request = caller.to_publish(inline)
    del request["staging_target_path"]
    said = {
        "csi.storage.k8s.io/ephemeral": "true",
        "volumeHandle": handle,
        "path": str(images.directory),
    }
    status, text = caller.refused("NodePublishVolume", **request, volume_context=said)
    assert (status, "path is not known" in text) == (Status.INVALID_ARGUMENT, True), text
    assert not os.path.lexists(request["target_path"])
    # Nor with another's handle in place of the one that the kubelet makes.
    lied = caller.to_publish(handle)
    of_itself = {"csi.storage.k8s.io/ephemeral": "true", "size": "1Mi"}
    status, _ = caller.refused("NodePublishVolume", **lied, volume_context=of_itself)
    assert status is Status.INVALID_ARGUMENT
    assert images.records() == [f"{handle}.json"]


# --- what is in use ------------------------------------------------------------------------------


def test_what_is_staged_is_not_removed(csi: CsiLab, caller: Caller, pool: MadePool) -> None:
    csi.serve_here()
    claim, volume, handle = claimed(csi)
    target = caller.use(handle)
    write(target)
    called = caller.create("of-a-call")
    write(caller.use(called))
    csi.delete(claim)
    csi.event(handle, "VolumeFailedDelete", "is in use")
    assert caller.refused("DeleteVolume", volume_id=called)[0] is REFUSED
    for one in (handle, called):
        assert reads(caller.target(one)) == WRITTEN
        # Its pod gone, it is still staged.
        caller.unpublish(one)
    assert caller.refused("DeleteVolume", volume_id=called)[0] is REFUSED
    assert csi.volume(handle) is not None
    for one in (handle, called):
        caller.unstage(one)
    caller.delete(called)
    csi.gone(volume)
    all_gone(csi, pool)


def test_a_device_that_a_container_has_mounted_that_nobody_sees_is_not_removed(
    csi: CsiLab, caller: Caller, images: MadePool
) -> None:
    """In a mount namespace of its own, and nothing mounted any more where the agent looks."""
    csi.serve_here()
    handle = caller.create("of-a-call")
    write(caller.use(handle))
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; read _"]
    held = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert held.stdin
    assert held.stdout
    try:
        held.stdout.readline()
        caller.leave(handle)
        assert caller.mounts() == []
        assert caller.refused("DeleteVolume", volume_id=handle)[0] is REFUSED
    finally:
        held.stdin.close()
        held.stdout.close()
        held.wait(60)
    assert reads(caller.use(handle)) == WRITTEN
    caller.leave(handle)
    # What was mounted there goes only some time after the container.
    csi.until(lambda: is_removed(caller, handle), bool)
    all_gone(csi, images)


def is_removed(caller: Caller, handle: str) -> bool:
    """Whether it is by now, and no more in use."""
    try:
        caller.delete(handle)
    except GRPCError as error:
        if error.status is not REFUSED:
            raise
        return False
    return True


def test_without_its_link_a_volume_in_use_gets_no_second_device(
    csi: CsiLab, caller: Caller, images: MadePool
) -> None:
    """Two filesystems on one image would destroy each other."""
    csi.serve_here()
    handle = caller.create("of-a-call")
    write(caller.use(handle))
    csi.stop()
    link_of(images, handle).unlink()
    csi.serve_here()
    other = caller.use(handle, "pod-2")
    assert reads(other) == WRITTEN
    assert len({one.device for one in caller.mounts()}) == 1
    (other / "more").write_text("more")
    assert (caller.target(handle) / "more").read_text() == "more"


# --- its place ------------------------------------------------------------------------------------


def test_what_is_not_the_image_that_was_made_is_not_mounted(
    csi: CsiLab, caller: Caller, images: MadePool
) -> None:
    """As where files were copied back, or exchanged, by hand."""
    csi.serve_here()
    first, second = caller.create("first"), caller.create("second")
    for one in (first, second):
        write(caller.use(one))
        caller.leave(one)
    csi.stop()
    detach_all(images.directory)
    where = images.directory / ".localvolume" / "images"
    (where / "first.img").rename(where / "kept")
    (where / "second.img").rename(where / "first.img")
    csi.serve_here()
    for one in (first, second):
        status, _ = caller.refused("NodeStageVolume", **caller.to_stage(one))
        assert status is Status.NOT_FOUND
    # Nor is it removed for the one whose name it has.
    caller.refused("DeleteVolume", volume_id=first)
    (where / "first.img").rename(where / "second.img")
    (where / "kept").rename(where / "first.img")
    for one in (first, second):
        assert reads(caller.use(one)) == WRITTEN


def test_a_filesystem_that_was_damaged_is_neither_mounted_nor_made_anew(
    csi: CsiLab, caller: Caller, images: MadePool
) -> None:
    csi.serve_here()
    handle = caller.create("of-a-call")
    write(caller.use(handle))
    caller.leave(handle)
    link = link_of(images, handle)
    with open(link, "r+b", buffering=0) as device:
        before = device.read(4096)
        device.seek(0)
        device.write(b"\0" * 4096)
        os.fsync(device)
    status, why = caller.refused("NodeStageVolume", **caller.to_stage(handle))
    assert status is Status.UNAVAILABLE, why
    assert caller.mounts() == []
    with open(link, "r+b", buffering=0) as device:
        assert device.read(4096) == b"\0" * 4096
        device.seek(0)
        device.write(before)
        os.fsync(device)
    assert reads(caller.use(handle)) == WRITTEN


def test_what_a_tenant_plants_leads_nowhere(csi: CsiLab, caller: Caller, pool: MadePool) -> None:
    csi.serve_here()
    claim, volume, handle = claimed(csi)
    victim = csi.directory / "victim"
    victim.mkdir()
    write(victim)
    root = caller.use(handle)
    for name in (".localvolume", "lost+found", "mount", "globalmount"):
        if not os.path.lexists(root / name):
            (root / name).symlink_to(victim)
    (root / "deep").mkdir()
    (root / "deep" / "up").symlink_to("../../../../../..")
    os.mknod(root / "null", 0o666 | 0o020000, os.makedev(1, 3))
    os.mkfifo(root / "fifo")
    root.chmod(0)
    os.chown(root, 4711, 4711)
    caller.leave(handle)
    again = caller.use(handle)
    assert (again / "fifo").is_fifo()
    assert again.stat().st_uid == 4711
    caller.leave(handle)
    csi.delete(claim)
    csi.gone(volume)
    all_gone(csi, pool)
    assert reads(victim) == WRITTEN
    # The next one is empty, and nobody's.
    _, _, handle = claimed_again(csi, claim)
    root = caller.use(handle)
    assert set(os.listdir(root)) <= {"lost+found"}
    assert root.stat().st_uid == 0


def claimed_again(lab: CsiLab, claim: Claim) -> tuple[Claim, Volume, str]:
    again = lab.claim(claim["spec"]["storageClassName"], size="32Mi")
    volume = lab.made(again)
    return again, volume, volume["metadata"]["name"]


def test_a_pool_that_is_unmounted_in_a_pods_life_is_not_the_directory_below(
    csi: CsiLab, caller: Caller
) -> None:
    """The same of a volume of a call: no object says in which pool that one lies."""
    pool = csi.csi_pool(backend="directory", size=64 * MIB, mustBeMounted=False)
    below = csi.directory / "below"
    below.mkdir()
    csi.serve_here()
    called = caller.create("of-a-call", 8 * MIB)
    stock_volume(csi, called)
    write(caller.use(called))
    csi.settle()
    csi.stop()
    # Another directory in its place: whatever was below a mount point that has lost its disk.
    mount(str(below), str(pool.directory), flags=MS_BIND)
    try:
        csi.serve_here()
        for rpc, request in (
            ("NodePublishVolume", caller.to_publish(called, "pod-2")),
            ("NodeStageVolume", caller.to_stage(called)),
            ("DeleteVolume", {"volume_id": called}),
            ("CreateVolume", caller.wanted("another", 8 * MIB)),
        ):
            status, why = caller.refused(rpc, **request)
            assert (rpc, status) == (rpc, Status.UNAVAILABLE), why
        assert os.listdir(below) == []
        # What a pod has it keeps, and can let go.
        assert reads(caller.target(called)) == WRITTEN
        caller.leave(called)
        assert caller.mounts() == []
        csi.stop()
    finally:
        unmount(pool.directory)
    csi.serve_here()
    assert reads(caller.use(called)) == WRITTEN


def test_on_another_node_a_moved_disk_keeps_its_volumes(
    csi: CsiLab, caller: Caller, images: MadePool
) -> None:
    """Their objects name the node that had it; the other one knows none of them."""
    csi.serve_here()
    claim, _, claimeds = claimed(csi)
    called = caller.create("of-a-call")
    named(csi, stock_volume(csi, called))
    bound(csi, called)
    for one in (claimeds, called):
        write(caller.use(one))
        caller.leave(one)
    csi.stop()
    csi.node = f"{csi.unique}-other"
    csi.objects.node(csi.node)
    csi.serve_here()
    csi.settle()
    for one in (claimeds, called):
        assert caller.refused("DeleteVolume", volume_id=one)[0] is REFUSED
    csi.delete(claim)
    csi.until(lambda: csi.phase(claimeds), lambda phase: phase == "Released")
    csi.settle()
    assert images.records() == sorted(f"{one}.json" for one in (claimeds, called))
    assert images.trash() == []
    for one in (claimeds, called):
        assert reads(caller.use(one)) == WRITTEN


# --- what is told --------------------------------------------------------------------------------


def test_a_volume_that_only_a_backup_of_etcd_has_is_not_made_anew(
    csi: CsiLab, caller: Caller, images: MadePool
) -> None:
    """Its pods must not run on an empty volume in place of their data."""
    csi.serve_here()
    claim, volume, handle = claimed(csi)
    write(caller.use(handle))
    caller.leave(handle)
    keys = f"persistentvolumes/{handle}", f"persistentvolumeclaims/default/{_name(claim)}"
    backup = Backup(csi.plane, *keys)
    csi.delete(claim)
    csi.gone(volume)
    all_gone(csi, images)
    csi.stop()
    backup.restore()
    csi.serve_here()
    csi.settle()
    assert csi.phase(handle) == "Bound"
    # Its pool may as well be away: nobody can tell.
    status, why = caller.refused("NodeStageVolume", **caller.to_stage(handle))
    assert status is Status.UNAVAILABLE
    assert f"no pool that is configured here has it, and PersistentVolume {handle} is of it" in why
    status, _ = caller.refused("CreateVolume", **caller.wanted(handle))
    assert status is Status.UNAVAILABLE
    assert images.records() == []


def test_a_claim_whose_volume_a_backup_does_not_know_gets_its_own_again(
    csi: CsiLab, caller: Caller, images: MadePool
) -> None:
    cls = csi.storage_class(provisioner=CSI)
    claim = csi.claim(cls, size="32Mi")
    backup = Backup(csi.plane, f"persistentvolumeclaims/default/{_name(claim)}")
    csi.serve_here()
    handle = csi.made(claim)["metadata"]["name"]
    write(caller.use(handle))
    csi.stop()
    Backup(csi.plane, f"persistentvolumes/{handle}").lose()
    backup.restore()
    csi.serve_here()
    csi.made(claim)
    assert reads(caller.use(handle, "pod-2")) == WRITTEN
    assert images.records() == [f"{handle}.json"]


def _name(claim: Claim) -> str:
    return str(claim["metadata"]["name"])


def test_what_is_undone_is_there_for_the_next_claim_of_that_name(
    csi: CsiLab, caller: Caller, pool: MadePool
) -> None:
    csi.serve_here()
    claim, _, handle = claimed(csi, undoPeriod="1h")
    write(caller.use(handle))
    caller.leave(handle)
    csi.delete(claim)
    csi.until(lambda: csi.phase(handle), lambda phase: phase == "Released")
    assert caller.refused("DeleteVolume", volume_id=handle)[0] is REFUSED
    words = ["undo", handle, "--kubeconfig", str(csi.plane.kubeconfig)]
    done = subprocess.run([sys.executable, "-m", "localvolume", *words], timeout=300, check=False)
    assert done.returncode == 0
    csi.claim(claim["spec"]["storageClassName"], name=_name(claim), size="32Mi", node=None)
    csi.until(lambda: csi.phase(handle), lambda phase: phase == "Bound")
    # That another claim has it is noted first.
    csi.settle()
    assert reads(caller.use(handle)) == WRITTEN
