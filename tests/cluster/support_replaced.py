"""kutti, local-path and OpenEBS in a lab: places, classes, and what they left behind."""

from __future__ import annotations

import copy
import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from localvolume.config.sources import Others
from tests.cluster.support_dynamic import Claim, DynamicLab, MadePool, Volume
from tests.suite.api import MERGE, VOLUMES
from tests.suite.names import (
    HOSTNAME,
    KUTTI,
    LOCAL_PATH,
    NODE_LABEL,
    OPENEBS,
    PROVISIONED_BY,
    SELECTED,
)

Kind = Literal["kutti", "local-path", "local-path, local", "openebs"]
KINDS: tuple[Kind, ...] = ("kutti", "local-path", "local-path, local", "openebs")
PROVISIONERS: Mapping[Kind, str] = {
    "kutti": KUTTI,
    "local-path": LOCAL_PATH,
    "local-path, local": LOCAL_PATH,
    "openebs": OPENEBS,
}


def root(lab: DynamicLab, name: str = "vols") -> MadePool:
    """The directory of a provisioner that is replaced, on a disk of its own."""
    where = lab.directory / name
    where.mkdir()
    lab.mount(lab.disk("ext4"), where)
    return MadePool(name, where)


def others(
    environ: Mapping[str, str] | None = None,
    local_path: Path | None = None,
    base_paths: Sequence[Path] = (),
) -> Others:
    """What environment and flags tell the agent."""
    return Others.read(
        environ or {},
        local_path_config=None if local_path is None else str(local_path),
        local_path_provisioner_name=LOCAL_PATH,
        openebs_base_path=[str(path) for path in base_paths],
    )


def in_place_of(lab: DynamicLab, kind: Kind, pool: MadePool) -> Others:
    """The agent in the place of that provisioner, with one directory."""
    match kind:
        case "kutti":
            variables = {"KUTTI_NODE_NAME": lab.node, "KUTTI_ROOT_PATH": str(pool.directory)}
            return others(variables)
        case "openebs":
            return others(base_paths=[pool.directory])
    return others(local_path=config_json(lab, node_paths(pool)))


def node_paths(*pools: MadePool, node: str = "DEFAULT_PATH_FOR_NON_LISTED_NODES") -> dict[str, Any]:
    """A config.json with these directories for a node."""
    return {"nodePathMap": [{"node": node, "paths": [str(one.directory) for one in pools]}]}


def config_json(lab: DynamicLab, body: Any) -> Path:
    """local-path's mounted ConfigMap with that config.json (as text, or to become JSON)."""
    directory = lab.directory / "local-path-config"
    directory.mkdir(exist_ok=True)
    new = lab.directory / "new-config.json"
    new.write_text(body if isinstance(body, str) else json.dumps(body))
    new.rename(directory / "config.json")
    return directory


def scheduled(lab: DynamicLab, class_name: str, **more: Any) -> Claim:
    """A claim whose first pod the scheduler has put on this node."""
    notes = {SELECTED: lab.node, **more.pop("annotations", {})}
    return lab.claim(class_name, annotations=notes, **more)


def label_node(lab: DynamicLab, **labels: str) -> None:
    path = f"/api/v1/nodes/{lab.node}"
    lab.plane.request("PATCH", path, {"metadata": {"labels": labels}}, content_type=MERGE)


def affinity(volume: Volume) -> list[tuple[str, list[str]]]:
    """The keys and values of its one node selector term."""
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert list(term) == ["matchExpressions"]
    assert all(one["operator"] == "In" for one in term["matchExpressions"])
    return [(one["key"], one["values"]) for one in term["matchExpressions"]]


def stat_of(path: Path) -> str:
    """As `stat -c '%a %u %g'` tells it."""
    found = os.stat(path)
    return f"{stat.S_IMODE(found.st_mode):o} {found.st_uid} {found.st_gid}"


def unserved(lab: DynamicLab, claim: Claim, text: str) -> None:
    """The claim's Event says why it has no volume; it is Pending and there is no volume."""
    lab.claim_event(claim, "ProvisioningFailed", text)
    lab.settle()
    found = lab.read_claim(claim)
    assert found is not None
    assert found["status"]["phase"] == "Pending"
    assert "volumeName" not in found["spec"]
    assert lab.volume_of(claim) is None


def removed(lab: DynamicLab, claim: Claim, volume: Volume, pool: MadePool) -> None:
    """Delete the claim; wait until object, directory, trash and record are gone."""
    lab.delete(claim)
    lab.gone(volume)
    assert not os.path.lexists(lab.path_of(volume))
    lab.until(lambda: (pool.trash(), pool.records()), lambda left: left == ([], []))


# --- what they left behind ---------------------------------------------------------------------


def place_of(kind: Kind, pool: MadePool, claim: Claim) -> Path:
    """Where that provisioner makes a claim's directory."""
    meta = claim["metadata"]
    name = f"pvc-{meta['uid']}"
    if PROVISIONERS[kind] == LOCAL_PATH:
        name += f"_{meta['namespace']}_{meta['name']}"
    return pool.directory / name


def left_behind(
    lab: DynamicLab,
    kind: Kind,
    class_name: str,
    pool: MadePool,
    *,
    at: Path | None = None,
    policy: str = "Delete",
    affinity_key: str = HOSTNAME,
    make: bool = True,
) -> tuple[Claim, Volume]:
    """A bound claim and its PersistentVolume, byte for byte as the provisioner wrote it, but for
    the label that the controller adopts it by; with a tenant's file in its directory."""
    claim = lab.claim(class_name, node=None)
    meta = claim["metadata"]
    path = at or place_of(kind, pool, claim)
    if make:
        path.mkdir(parents=True, mode=0o777)
        (path / "rows").write_text("precious")
    node = lab.plane.request("GET", f"/api/v1/nodes/{lab.node}")
    value = lab.node if kind == "kutti" else node["metadata"]["labels"][affinity_key]
    term = {"key": affinity_key, "operator": "In", "values": [value]}
    annotations = {PROVISIONED_BY: PROVISIONERS[kind]}
    labels = {NODE_LABEL: lab.node}
    spec: dict[str, Any] = {
        "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": policy,
        "storageClassName": class_name,
        "claimRef": {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            **{key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion")},
        },
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
    }
    match kind:
        case "kutti":
            annotations["kuttiproject.org/provisionedBy"] = KUTTI
            annotations["kuttiproject.org/provisionedOn"] = lab.node
            spec["local"] = {"path": str(path)}
        case "local-path" | "local-path, local":
            annotations["local.path.provisioner/selected-node"] = lab.node
            spec["volumeMode"] = "Filesystem"
            if kind == "local-path":
                spec["hostPath"] = {"path": str(path), "type": "DirectoryOrCreate"}
            else:
                spec["local"] = {"path": str(path)}
        case "openebs":
            labels["openebs.io/cas-type"] = "local-hostpath"
            spec["volumeMode"] = "Filesystem"
            spec["local"] = {"path": str(path), "fsType": ""}
    metadata = {"name": f"pvc-{meta['uid']}", "annotations": annotations, "labels": labels}
    lab.objects.make(VOLUMES, {"metadata": metadata, "spec": spec})
    return claim, lab.made(claim)


def said(volume: Volume) -> dict[str, Any]:
    """Metadata and spec without the API server's own bookkeeping."""
    meta = copy.deepcopy(volume["metadata"])
    for key in ("resourceVersion", "managedFields"):
        meta.pop(key, None)
    return {"metadata": meta, "spec": volume["spec"]}
