"""What the agent does about its FlexVolume PersistentVolumes, one look at a time: what is another's
is left alone, what ends is noted on disk first, and what grows is told.

In the sandbox without controllers, where phases stay as a test has set them. Directories stand in
for logical volumes: their driver notes the size, and no kernel is needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.kinds import CLAIMS, NODES, PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolumeClaim
from localvolume.volumes import marks
from localvolume_lab.sandbox.sandbox import Sandbox
from tests.contract.support_flexkeeping import ELASTIC, FACTS, HELD, NAME, NODE, OURS, Ground
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root")


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    root = tmp_path / "volumes"
    root.mkdir()
    async with Sandbox(controllers=False) as sandbox:
        access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
        async with Client(access, user_agent="test") as client:
            labels = {marks.HOSTNAME_LABEL: NODE}
            await client.create(NODES, {"metadata": {"name": NODE, "labels": labels}})
            yield Ground(sandbox, client, root)


# --- whose it is ---------------------------------------------------------------------------------


async def test_a_driver_that_is_not_served_here_is_let_go_by_whoever_serves_it(
    ground: Ground,
) -> None:
    volume = await ground.volume(driver=ELASTIC, phase="Released")
    await ground.delete(volume)
    await ground.look(ground.keeping(names=(OURS,)))
    assert list(ground.sandbox.requests) == []
    assert marks.FINALIZER in (await ground.live()).metadata.finalizers


async def test_that_it_is_another_nodes_is_said_once(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    await ground.volume(labels={marks.NODE_LABEL: "node-2"})
    keeping = ground.keeping()
    for _ in range(2):
        await ground.look(keeping)
        assert list(ground.sandbox.requests) == []
    said = [record.getMessage() for record in caplog.records if "node-2" in record.getMessage()]
    assert said == ["nothing is done about it: it is bound to the node node-2"]


# --- its end -------------------------------------------------------------------------------------


async def test_what_a_claim_has_is_not_let_go(ground: Ground) -> None:
    volume = await ground.volume(phase="Bound")
    ground.mounted(volume)
    await ground.delete(volume)
    await ground.look(ground.keeping())
    assert list(ground.sandbox.requests) == []
    assert "ended" not in ground.owned().tags


async def test_while_others_hold_it_only_its_policy_is_heeded(ground: Ground) -> None:
    """Whoever sees a volume go and wants it kept sets its policy to Retain."""
    volume = await ground.volume(phase="Released", finalizers=(HELD,))
    ground.mounted(volume)
    await ground.delete(volume)
    before = ground.owned()
    await ground.look(ground.keeping())
    assert ground.owned() == before
    patch = MergePatch({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    await ground.client.patch(PERSISTENT_VOLUMES, NAME, patch)
    await ground.look(ground.keeping())
    assert ground.owned().tags == {**before.tags, "policy": "Retain"}
    assert ground.writes() == []


async def test_elastics_volume_is_noted_before_its_object_is_let_go(ground: Ground) -> None:
    """It may be deleted before this agent has adopted anything; else nobody would remove it."""
    (ground.root / NAME).mkdir()
    (ground.root / NAME / "file").write_text("tenant data")
    volume = await ground.volume(driver=ELASTIC, phase="Released", finalizers=(marks.FINALIZER,))
    await ground.delete(volume)
    await ground.look(ground.keeping())
    uid = volume.metadata.uid
    tags = ground.owned().tags
    assert (tags["ended"], tags["pv-uid"], tags["policy"]) == (uid, uid, "Delete")
    assert (ground.root / NAME / "file").exists()
    assert marks.FINALIZER not in (await ground.live()).metadata.finalizers


async def test_a_directory_that_nobody_says_is_elastics_stays_unmarked(ground: Ground) -> None:
    (ground.root / NAME).mkdir()
    volume = await ground.volume(driver=OURS, phase="Released")
    await ground.delete(volume)
    await ground.look(ground.keeping())
    assert ground.driver.unmarked() == [NAME]
    assert marks.FINALIZER not in (await ground.live()).metadata.finalizers


async def test_one_that_names_no_claim_waits_for_none(ground: Ground) -> None:
    volume = await ground.volume(phase="Available", claim_uid="")
    ground.mounted(volume)
    await ground.delete(volume)
    await ground.look(ground.keeping())
    assert [one.resource for one in ground.sandbox.requests] == ["persistentvolumes"] * 2
    assert ground.owned().tags["ended"] == volume.metadata.uid
    assert marks.FINALIZER not in (await ground.live()).metadata.finalizers


# --- growing -------------------------------------------------------------------------------------


async def test_what_grew_is_told_on_both_objects(ground: Ground) -> None:
    """Where nobody else has raised the object's capacity, and none said that it is resized."""
    claim = await ground.claim()
    ground.mounted(await ground.volume(claim_uid=claim.metadata.uid))
    await ground.look(ground.keeping("lvm"), {"default/data": claim})
    assert ground.owned().size_bytes == 16 * MIB
    assert (await ground.live()).spec.capacity["storage"] == "16Mi"
    told = await ground.client.get(CLAIMS, "data", "default")
    assert (told.status.capacity["storage"], told.status.conditions) == ("16Mi", ())


@pytest.mark.parametrize("what", ["unknown", "another", "going"])
async def test_a_claim_that_is_not_certainly_its_own_grows_nothing(
    ground: Ground, what: str
) -> None:
    claim = await ground.claim()
    uid = "an-earlier-claim" if what == "another" else claim.metadata.uid
    ground.mounted(await ground.volume(claim_uid=uid))
    if what == "going":
        patch = MergePatch({"metadata": {"finalizers": [HELD]}})
        await ground.client.patch(CLAIMS, "data", patch, "default")
        await ground.client.delete(CLAIMS, "data", "default", uid=uid)
        claim = await ground.client.get(CLAIMS, "data", "default")
    await ground.look(ground.keeping("lvm"), {} if what == "unknown" else {"default/data": claim})
    assert ground.owned().size_bytes == 8 * MIB


async def test_another_claim_of_the_name_is_told_nothing(ground: Ground) -> None:
    """Deleted and made anew while the volume grew, which no watch has told of yet."""
    before = await ground.claim()
    ground.mounted(await ground.volume(claim_uid=before.metadata.uid))
    patch = MergePatch({"metadata": {"finalizers": None}})
    await ground.client.patch(CLAIMS, "data", patch, "default")
    await ground.client.delete(CLAIMS, "data", "default", uid=before.metadata.uid)
    await ground.claim()
    # Its status says already to what it grows: so it is not written to before.
    status = {
        "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
        "allocatedResources": {"storage": "16Mi"},
        "allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"},
    }
    known = msgspec.convert(
        {**msgspec.to_builtins(before), "status": {**msgspec.to_builtins(before.status), **status}},
        type=PersistentVolumeClaim,
    )
    await ground.look(ground.keeping("lvm"), {"default/data": known})
    assert ground.owned().size_bytes == 16 * MIB
    told = await ground.client.get(CLAIMS, "data", "default")
    assert told.status.capacity["storage"] == "8Mi"


# --- elastic's -----------------------------------------------------------------------------------


async def bound(ground: Ground, name: str, driver: str = ELASTIC) -> None:
    await ground.volume(
        name=name, driver=driver, finalizers=(), labels={marks.ELASTIC_NODE_LABEL: NODE}
    )


async def finalized(ground: Ground) -> set[str]:
    page = await ground.client.list_page(PERSISTENT_VOLUMES)
    return {one.metadata.name for one in page.items if marks.FINALIZER in one.metadata.finalizers}


async def test_all_that_elastics_driver_bound_here_gets_our_marks(ground: Ground) -> None:
    for name in ("pvc-1", "pvc-2", "pvc-3"):
        await bound(ground, name)
    await bound(ground, "pvc-of-ours", OURS)
    ground.sandbox.requests.clear()
    await ground.keeping(page=2).mark_elastics(FACTS)
    assert await finalized(ground) == {"pvc-1", "pvc-2", "pvc-3"}
    lists = [one for one in ground.sandbox.requests if one.verb == "list"]
    assert len(lists) == 3, "two pages, and the one of this test"


async def test_where_elastics_is_not_served_its_objects_stay_as_they_are(ground: Ground) -> None:
    await bound(ground, "pvc-1")
    await ground.keeping(names=(OURS,)).mark_elastics(FACTS)
    assert await finalized(ground) == set()


async def test_a_node_whose_name_is_no_label_was_never_elastics(ground: Ground) -> None:
    """Asked for by that name, the API server would refuse the list for ever."""
    ground.sandbox.requests.clear()
    await ground.keeping(node=f"n{'o' * 70}").mark_elastics(FACTS)
    assert list(ground.sandbox.requests) == []
