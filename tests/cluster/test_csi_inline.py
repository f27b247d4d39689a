"""Pods' own volumes of the running agent: within limits, and removed with their pods."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from localvolume.cli.main import main
from localvolume.host.mount.mounts import Mount
from tests.cluster.support_accounts import account, rule
from tests.cluster.support_csi import CsiLab
from tests.cluster.support_csicalls import Caller
from tests.cluster.support_inline import InlinePod, inline_pod
from tests.cluster.support_seeing import Seeing
from tests.faults.support_poolground import MadePool
from tests.host.support_devices import unmount
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

SIZE = "16Mi"
LIMITS = {"largest": "24Mi", "total": "40Mi"}

Podder = Callable[..., InlinePod]


@pytest.fixture
def disk(csi: CsiLab) -> MadePool:
    """A pool of images that pods may use, and an agent that serves it."""
    made = csi.csi_pool(backend="image", size=256 * MIB, inline=LIMITS)
    csi.configure()
    return MadePool(made.directory)


@pytest.fixture
def pod(csi: CsiLab, unique: str) -> Podder:
    made = iter(range(99))

    def of(**attributes: str) -> InlinePod:
        name = f"{unique}-{next(made)}"
        caller = Caller(csi.kubelet)
        return inline_pod(csi.objects, caller, csi.node, name, **({"size": SIZE} | attributes))

    return of


def mounts(of: InlinePod) -> list[Mount]:
    return [one for one in of.caller.mounts() if one.mount_point == str(of.target)]


def nothing_left(csi: CsiLab, disk: MadePool) -> None:
    csi.until(lambda: (disk.records(), disk.images(), disk.loops()), lambda found: not any(found))
    csi.until(disk.leftovers, lambda found: not found)


def test_it_is_there_with_its_pod_and_goes_with_it(
    csi: CsiLab, disk: MadePool, pod: Podder
) -> None:
    csi.serve()
    web = pod(pool="fast")
    place = web.publish()
    found = os.statvfs(place)
    assert 12 * MIB < found.f_blocks * found.f_frsize < 20 * MIB
    (place / "file").write_text("mine")
    # The kubelet repeats what it does not know the end of.
    assert (web.publish() / "file").read_text() == "mine"
    assert len(mounts(web)) == 1
    (record,) = disk.records().values()
    assert (record["pod"], record["pod_uid"]) == (f"default/{web.name}", web.uid)
    # It is no volume for any other call.
    assert web.caller.listed() == []
    web.caller.delete(web.handle)
    status, _ = web.caller.refused("CreateSnapshot", name="cut", source_volume_id=web.handle)
    assert status is Status.NOT_FOUND
    assert (place / "file").read_text() == "mine"
    for _ in range(2):
        web.unpublish()
        assert not os.path.lexists(web.target)
    nothing_left(csi, disk)
    # Nor does the same pod see what was in it, if it asks once more.
    assert set(os.listdir(web.publish())) == {"lost+found"}
    web.unpublish()
    nothing_left(csi, disk)


@pytest.mark.needs("btrfs")
def test_a_subvolume(csi: CsiLab, pod: Podder) -> None:
    """It is no device: the pod has a mount of the directory."""
    limits = {"largest": "24Mi", "total": "40Mi"}
    made = csi.csi_pool(backend="btrfs", fs_type="btrfs", size=512 * MIB, inline=limits)
    csi.serve()
    web = pod()
    place = web.publish()
    assert os.listdir(place) == []
    with pytest.raises(OSError, match="quota"):
        _fill(place / "file", 32)
    assert (web.publish() / "file").stat().st_size < 17 * MIB
    web.unpublish()
    disk = MadePool(made.directory)
    csi.until(lambda: (disk.records(), disk.leftovers()), lambda found: not any(found))


def _fill(path: Path, mebibytes: int) -> None:
    with path.open("wb") as file:
        for _ in range(mebibytes):
            file.write(os.urandom(MIB))
            file.flush()
            os.fsync(file.fileno())


def test_how_much_a_pod_has(csi: CsiLab, disk: MadePool, pod: Podder) -> None:
    csi.serve()
    web = pod()
    web.publish()
    stats = web.caller.call("NodeGetVolumeStats", volume_id=web.handle, volume_path=str(web.target))
    assert {one.unit for one in stats.usage} == {1, 2}
    assert all(one.total > 0 for one in stats.usage)
    web.unpublish()


def test_a_pod_may_only_read_it(csi: CsiLab, disk: MadePool, pod: Podder) -> None:
    csi.serve()
    web = pod()
    web.caller.call("NodePublishVolume", **web.to_publish(readonly=True))
    (found,) = mounts(web)
    assert "ro" in found.options.split(",")
    web.unpublish()


def test_what_is_refused_leaves_nothing_behind(csi: CsiLab, disk: MadePool, pod: Podder) -> None:
    csi.serve()
    for attributes, status, word in (
        ({"size": "25Mi"}, Status.OUT_OF_RANGE, "at most 24Mi"),
        ({"size": "-1"}, Status.INVALID_ARGUMENT, "size"),
        ({"pool": "slow"}, Status.INVALID_ARGUMENT, "slow"),
        ({"path": "/etc"}, Status.INVALID_ARGUMENT, "path is not known"),
    ):
        web = pod(**attributes)
        assert (found := web.refused())[0] is status, found
        assert word in found[1]
        assert not os.path.lexists(web.target)
    web = pod()
    block: dict[str, Any] = {"access_mode": {"mode": 7}, "block": {}}
    assert web.refused(volume_capability=block)[0] is Status.INVALID_ARGUMENT
    ntfs = {"access_mode": {"mode": 7}, "mount": {"fs_type": "ntfs"}}
    assert web.refused(volume_capability=ntfs)[0] is Status.INVALID_ARGUMENT
    # Another pod's directory, whatever the pod's owner wrote.
    other = pod()
    other.target.parent.mkdir(parents=True)
    assert web.refused(target_path=str(other.target))[0] is Status.INVALID_ARGUMENT
    nothing_left(csi, disk)


def test_all_pods_together_have_no_more_than_the_total(
    csi: CsiLab, disk: MadePool, pod: Podder
) -> None:
    csi.serve()
    first, second, third = pod(), pod(), pod()
    first.publish()
    second.publish()
    csi.until(
        lambda: csi.metric("localvolume_pool_inline_bytes", pool="fast"), lambda n: n == 32 * MIB
    )
    assert csi.metric("localvolume_pool_inline_limit_bytes", pool="fast") == 40 * MIB
    status, said = third.refused()
    assert (status, "8Mi are left of the 40Mi" in said) == (Status.RESOURCE_EXHAUSTED, True), said
    first.unpublish()
    # The kubelet asks until there is room again.
    csi.until(lambda: _published(third), bool)
    second.unpublish()
    third.unpublish()
    nothing_left(csi, disk)


def _published(of: InlinePod) -> bool:
    try:
        of.publish()
    except GRPCError as error:
        if "are left of" not in (error.message or ""):
            raise
        return False
    return True


def test_a_pool_that_is_full_for_claims_is_full_for_pods(csi: CsiLab, pod: Podder) -> None:
    limits = {"largest": "1Gi", "total": "9Gi"}
    made = csi.csi_pool(backend="image", size=64 * MIB, inline=limits)
    csi.serve()
    status, said = pod(size="65Mi").refused()
    assert status is Status.RESOURCE_EXHAUSTED
    assert "of room left" in said
    nothing_left(csi, MadePool(made.directory))


def test_no_pod_has_any_where_no_pool_says_so(csi: CsiLab, pod: Podder) -> None:
    csi.csi_pool(backend="image", size=64 * MIB)
    csi.serve()
    status, said = pod().refused()
    assert (status, "inline" in said) == (Status.INVALID_ARGUMENT, True), said


def test_a_claims_volume_is_no_pods_own_whatever_it_is_called(
    csi: CsiLab, disk: MadePool, pod: Podder
) -> None:
    """As if a PersistentVolume said that it is; the kubelet says that itself."""
    csi.serve()
    web = pod()
    for name in ("volume-1", web.handle):
        handle = web.caller.create(name)
        lied = {**web.to_publish(), "volume_id": handle}
        status, _ = web.caller.refused("NodePublishVolume", **lied)
        assert status in (Status.INVALID_ARGUMENT, Status.ALREADY_EXISTS)
        target = str(web.target)
        web.caller.call("NodeUnpublishVolume", volume_id=handle, target_path=target)
        assert web.caller.listed() == [handle]
        web.caller.delete(handle)


def test_who_asks_about_it_is_told_whose_it_is(
    csi: CsiLab, disk: MadePool, pod: Podder, capsys: pytest.CaptureFixture[str]
) -> None:
    csi.serve()
    web = pod()
    web.publish()
    place = ("--config", str(csi.config_directory), "--node", csi.node)
    image = disk.directory / ".localvolume/images" / f"{web.handle}.img"
    found = Seeing(csi.plane, capsys).why(str(image), *place)
    assert found["code"] == "inline"
    assert f"of pod default/{web.name}" in found["reason"]
    assert {one["name"]: one["value"] for one in found["facts"]}["Size"] == SIZE
    assert main(["orphans", *place, "--kubeconfig", str(csi.plane.kubeconfig)]) == 0
    web.unpublish()


# --- pods that end without a call --------------------------------------------------------------


def unmount_by_hand(of: InlinePod) -> None:
    """As after a restart of the node: the kubelet's directory of the pod is gone."""
    unmount(of.target)
    os.rmdir(of.target)


@pytest.mark.parametrize("phase", ["", "Succeeded", "Failed"])
def test_one_whose_pod_is_over_goes_although_no_call_comes(
    csi: CsiLab, disk: MadePool, pod: Podder, phase: str
) -> None:
    agent = csi.serve()
    web, other = pod(), pod()
    for one in (web, other):
        (one.publish() / "file").write_text("mine")
    agent.kill()
    if phase:
        web.says(phase)
    else:
        web.delete()
    unmount_by_hand(web)
    unmount_by_hand(other)
    csi.serve()
    csi.until(disk.records, lambda found: list(found) == [other.handle])
    # That of a pod that is there waits for it.
    assert (other.publish() / "file").read_text() == "mine"
    other.unpublish()
    nothing_left(csi, disk)


def test_one_that_is_mounted_stays_whatever_the_api_server_says(
    csi: CsiLab, disk: MadePool, pod: Podder
) -> None:
    """The pod was deleted by force while the node could not be reached: it may run on."""
    agent = csi.serve()
    web, over = pod(), pod()
    for one in (web, over):
        (one.publish() / "file").write_text("mine")
    agent.kill()
    web.delete()
    over.delete()
    unmount_by_hand(over)
    csi.serve()
    # It was looked at: the other one is gone.
    csi.until(disk.records, lambda found: list(found) == [web.handle])
    assert (web.target / "file").read_text() == "mine"
    web.unpublish()
    nothing_left(csi, disk)


def test_a_pod_that_another_has_taken_the_name_of_is_over(
    csi: CsiLab, disk: MadePool, pod: Podder
) -> None:
    agent = csi.serve()
    web = pod()
    web.publish()
    agent.kill()
    web.delete()
    inline_pod(csi.objects, web.caller, csi.node, web.name, size=SIZE)
    unmount_by_hand(web)
    csi.serve()
    nothing_left(csi, disk)


def test_a_pod_ends_although_its_pool_is_away_and_its_volume_goes_later(
    csi: CsiLab, disk: MadePool, pod: Podder
) -> None:
    agent = csi.serve()
    web = pod()
    web.publish()
    agent.kill()
    csi.settings["pools"] = {"other": {"hostDir": str(csi.directory), "mustBeMounted": False}}
    csi.configure()
    again = csi.serve()
    web.unpublish()
    assert not os.path.lexists(web.target)
    assert list(disk.records()) == [web.handle]
    web.delete()
    again.kill()
    csi.settings["pools"] = {
        "fast": {"hostDir": str(disk.directory), "backend": "image", "inline": LIMITS}
    }
    csi.configure()
    csi.serve()
    nothing_left(csi, disk)


# --- what people are told -----------------------------------------------------------------------


def test_why_says_where_the_volume_of_a_pods_spec_is_or_why_it_is_not_there(
    csi: CsiLab, disk: MadePool, pod: Podder, capsys: pytest.CaptureFixture[str]
) -> None:
    csi.serve()
    one, large, wrong = pod(), pod(size="1Gi"), pod(sise="1Mi")
    seeing = Seeing(csi.plane, capsys)
    node = ["--node", csi.node, "--config", str(csi.config_directory)]

    def why(of: InlinePod, *words: str) -> dict[str, Any]:
        return seeing.why(f"pod/{of.name}", *(words or node))

    assert why(one)["code"] == "inline-waiting"
    one.publish()
    found = why(one)
    told = {fact["name"]: fact["value"] for fact in found["facts"]}
    assert found["code"] == "inline"
    assert told["Place"] == f"{disk.directory}/.localvolume/images/{one.handle}.img"
    assert (told["Pool"], told["Size"]) == ("fast, backend image", SIZE)
    assert told["Node"] == csi.node
    assert told["Since"].startswith("20")
    # Elsewhere nobody can know: it says whom to ask, and what the pod's spec asks for.
    found = why(one, "--node", "elsewhere")
    assert (found["code"], "localvolume why pod/" in found["who"]) == ("inline-elsewhere", True)
    status, refusal = large.refused()
    assert status is Status.OUT_OF_RANGE
    assert why(large)["code"] == "inline-refused"
    assert refusal in why(large)["reason"]
    found = why(wrong, "--node", "elsewhere")
    assert (found["code"], "sise is not known" in found["reason"]) == ("inline-wrong", True)
    one.unpublish()
    one.says("Succeeded")
    csi.until(lambda: why(one)["code"], lambda code: code == "inline-over")
    # Who may not read Events is told that, and the rest all the same, as in the agent's pod.
    listed = ("persistentvolumes", "persistentvolumeclaims", "nodes")
    rules = [rule("pods", "get"), *(rule(kind, "list") for kind in listed)]
    seeing.kubeconfig = str(account(csi, rules))
    found = why(one)
    assert found["code"] == "inline-over"
    assert any(fact["name"] == "Events" for fact in found["facts"])
    said = seeing.ask("why", f"pod/{one.name}x")
    assert (said.status, "there is no pod" in said.err) == (1, True)
