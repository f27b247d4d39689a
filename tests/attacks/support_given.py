"""A CSI volume to which a tenant has written, and an administrator who gives it to another."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from localvolume_lab.controlplane import RequestFailed
from tests.cluster.support_dynamic import Claim
from tests.cluster.support_groups import GroupLab
from tests.suite.api import CLAIMS, MERGE, VOLUMES
from tests.suite.names import NODE_LABEL

SECRET = "what the tenant has written"
SIZE = "16Mi"


def written(lab: GroupLab, claim: Claim) -> str:
    """The handle of the claim's volume, to which its pod has written."""
    handle = lab.handle(claim)
    write(lab, handle, SECRET)
    return handle


def write(lab: GroupLab, handle: str, text: str) -> None:
    """What a pod does with the volume."""
    place = lab.caller.use(handle)
    (place / "file").write_text(text)
    fd = os.open(place, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    lab.caller.leave(handle)


def of_accomplice(
    lab: GroupLab, cls: str, name: str, namespace: str = "default", **spec: Any
) -> Claim:
    """A claim of the accomplice's, which says itself that it is for the agent here."""
    labels = {"app": f"{lab.unique}-db", NODE_LABEL: lab.node}
    wanted = {
        "storageClassName": cls,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": SIZE}},
        **spec,
    }
    metadata = {"name": f"{lab.unique}-{name}", "labels": labels}
    return lab.objects.make(within(CLAIMS, namespace), {"metadata": metadata, "spec": wanted})


def give_away(lab: GroupLab, claim: Claim, handle: str, namespace: str) -> Claim:
    """Give the volume of a claim, which its tenant deletes, to a claim of another namespace."""
    path = f"{VOLUMES}/{handle}"
    outlived(lab, claim, handle)
    spec = {"volumeName": handle}
    other = of_accomplice(lab, claim["spec"]["storageClassName"], "theirs", namespace, **spec)
    meta = other["metadata"]
    ref = {"namespace": namespace, "name": meta["name"], "uid": meta["uid"]}
    merge(lab, path, {"spec": {"claimRef": {**ref, "resourceVersion": None}}})
    lab.until(
        lambda: lab.objects.get(path), lambda found: bool(found["status"]["phase"] == "Bound")
    )
    return other


def kept_for_its_name(lab: GroupLab, claim: Claim, handle: str) -> None:
    """Keep the volume of a claim that its tenant deletes, as `localvolume undo` does."""
    outlived(lab, claim, handle)
    nobody = {"uid": None, "resourceVersion": None}
    merge(lab, f"{VOLUMES}/{handle}", {"spec": {"claimRef": nobody}})
    lab.until(lambda: lab.phase(handle), lambda phase: phase == "Available")


def outlived(lab: GroupLab, claim: Claim, handle: str) -> None:
    """Have the claim's tenant delete it, and the volume stay."""
    mine = f"{CLAIMS}/{claim['metadata']['name']}"
    policy = {"persistentVolumeReclaimPolicy": "Retain"}
    merge(lab, f"{VOLUMES}/{handle}", {"spec": policy})
    lab.plane.request("DELETE", mine)
    # The snapshot-controller's, which the tenant takes away, if it has not gone already.
    with contextlib.suppress(RequestFailed):
        merge(lab, mine, {"metadata": {"finalizers": None}})
    lab.made(claim, phase="Released")


def merge(lab: GroupLab, path: str, body: Any) -> None:
    lab.plane.request("PATCH", path, body, content_type=MERGE)


def within(collection: str, namespace: str) -> str:
    return collection.replace("/namespaces/default/", f"/namespaces/{namespace}/")
