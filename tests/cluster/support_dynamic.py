"""A node with pools for one test: StorageClasses, claims routed to it, and its agent.

Routing is the controller's: where it is not the matter, tests label claims themselves, as it does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from localvolume.dynamic.paces import DynamicPaces
from localvolume_lab.controlplane import RequestFailed
from tests.cluster.support_agent import Lab
from tests.cluster.support_objects import Objects
from tests.suite.api import CLAIMS, CLASSES, MERGE, VOLUMES
from tests.suite.names import NODE_LABEL
from tests.suite.until import until

PROVISIONER = "dynamic.localvolume.dev"


Claim = dict[str, Any]
Volume = dict[str, Any]


@dataclass(frozen=True)
class MadePool:
    """A pool of the node: its name and its directory, which is the same for host and agent."""

    name: str
    directory: Path

    def inside(self) -> list[str]:
        """The names in it that are not ours."""
        return sorted(set(os.listdir(self.directory)) - {".localvolume", "lost+found"})

    def trash(self) -> list[str]:
        return sorted(os.listdir(self.directory / ".localvolume" / "trash"))

    def records(self) -> list[str]:
        """The files of the records, of which none stays half written."""
        directory = self.directory / ".localvolume" / "records"
        return until(
            lambda: sorted(os.listdir(directory)),
            lambda names: not any(name.startswith(".") for name in names),
        )


class DynamicLab(Lab):
    """`pool`, `storage_class`, `claim`; then `start`."""

    def __init__(self, objects: Objects, unique: str, directory: Path) -> None:
        super().__init__(objects, unique, directory)
        self.settings = {"pools": {}}
        self.class_names: set[str] = set()

    def hurry_dynamic(self, **dynamic: Any) -> None:
        """Give the dynamic role of the agents that are started from now on these paces."""
        self.paces = replace(self.paces, dynamic=DynamicPaces(**dynamic))

    # --- making things -------------------------------------------------------------------------

    def pool(
        self,
        name: str = "fast",
        *,
        fs_type: str = "ext4",
        size: int | None = None,
        options: str = "",
        mounted: bool = True,
        **keys: Any,
    ) -> MadePool:
        """A pool on a disk of its own (`enforce: none` unless said otherwise)."""
        where = self.directory / f"pool-{name}"
        where.mkdir(exist_ok=True)
        if mounted:
            self.mount(self.disk(fs_type, size=size), where, options=options)
        if keys.get("backend", "directory") == "directory":
            keys.setdefault("enforce", "none")
        self.settings["pools"][name] = {"hostDir": str(where), **keys}
        return MadePool(name, where)

    def storage_class(
        self,
        kind: str = "fast",
        *,
        provisioner: str = PROVISIONER,
        parameters: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        waits: bool = False,
        **fields: Any,
    ) -> str:
        """A StorageClass of the lab; returns its name."""
        name = f"{self.unique}-{kind}"
        body = {
            "metadata": {"name": name, "annotations": dict(annotations or {})},
            "provisioner": provisioner,
            "parameters": dict(parameters or {}),
            "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
            "allowVolumeExpansion": True,
            **fields,
        }
        self.objects.make(CLASSES, body)
        self.class_names.add(name)
        return name

    def claim(  # type: ignore[override]  # of another kind: made for a class, not for a volume
        self,
        class_name: str,
        *,
        size: str = "8Mi",
        node: str | None = "",
        name: str = "",
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Claim:
        """A claim, routed to this node unless `node` is another one (None: to nobody)."""
        self._count += 1
        name = name or f"{self.unique}-claim-{self._count}"
        to = self.node if node == "" else node
        routed = {} if to is None else {NODE_LABEL: to}
        return self.objects.make(
            CLAIMS,
            {
                "metadata": {
                    "name": name,
                    "labels": {**(labels or {}), **routed},
                    "annotations": dict(annotations or {}),
                },
                "spec": {
                    "storageClassName": class_name,
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": size}},
                    **spec,
                },
            },
        )

    # --- looking -------------------------------------------------------------------------------

    def looks(self) -> float:
        return self.metric("localvolume_dynamic_looks_total") or 0

    def settle(self) -> None:
        """Have the node looked at again, from the beginning to the end."""
        assert self.agent is not None
        before = self.counted()
        self._count += 1
        body = {"metadata": {"labels": {"look": f"again-{self._count}"}}}
        path = f"/api/v1/nodes/{self.node}"
        self.plane.request("PATCH", path, body, content_type=MERGE)
        self.until(self.looks, lambda looks: looks >= before + 1)
        before = self.counted()
        body["metadata"]["labels"]["look"] += "-and-again"
        self.plane.request("PATCH", path, body, content_type=MERGE)
        self.until(self.looks, lambda looks: looks >= before + 1)

    def volumes(self) -> list[Volume]:
        found = self.plane.request("GET", VOLUMES)["items"]
        return [v for v in found if v["spec"].get("storageClassName") in self.class_names]

    def read_claim(self, claim: Claim) -> Claim | None:
        try:
            found: Claim = self.plane.request("GET", f"{CLAIMS}/{claim['metadata']['name']}")
        except RequestFailed as error:
            if error.status == 404:
                return None
            raise
        return found

    def volume_of(self, claim: Claim) -> Volume | None:
        return self.volume(f"pvc-{claim['metadata']['uid']}")

    def made(self, claim: Claim, phase: str = "Bound") -> Volume:
        """The claim's PersistentVolume once it is bound."""
        found: Volume | None = self.until(
            lambda: self.volume_of(claim), lambda v: v and v["status"].get("phase") == phase
        )
        assert found is not None
        return found

    def path_of(self, volume: Volume) -> Path:
        source = volume["spec"].get("local") or volume["spec"]["hostPath"]
        return Path(source["path"])

    def gone(self, volume: Volume) -> None:
        """Wait until there is no such object any more."""
        name = volume["metadata"]["name"]
        self.until(lambda: self.volume(name), lambda found: found is None)

    def delete(self, claim: Claim) -> None:
        self.delete_claim(claim["metadata"]["name"])

    def grow(self, claim: Claim, size: str) -> None:
        """Have the claim ask for more."""
        # Its volume is said to be bound before it is itself, and it may not grow before.
        self.until(
            lambda: self.read_claim(claim),
            lambda found: found and found["status"]["phase"] == "Bound",
        )
        self.patch_claim(claim, {"spec": {"resources": {"requests": {"storage": size}}}})

    def patch_claim(self, claim: Claim, body: Any) -> Claim:
        path = f"{CLAIMS}/{claim['metadata']['name']}"
        changed: Claim = self.plane.request("PATCH", path, body, content_type=MERGE)
        return changed

    def claim_event(self, claim: Claim, reason: str, text: str = "") -> dict[str, Any]:
        return self.event(claim["metadata"]["name"], reason, text)

    def _remove_objects(self) -> None:
        for claim in self.plane.request("GET", CLAIMS)["items"]:
            if claim["spec"].get("storageClassName") in self.class_names:
                self._ignore_missing("DELETE", f"{CLAIMS}/{claim['metadata']['name']}")
        for volume in self.volumes():
            path = f"{VOLUMES}/{volume['metadata']['name']}"
            self._ignore_missing("PATCH", path, {"metadata": {"finalizers": None}})
            self._ignore_missing("DELETE", path)


@contextlib.contextmanager
def dynamic_lab_for(objects: Objects, unique: str, directory: Path) -> Iterator[DynamicLab]:
    """A lab with its node; everything of it goes in the end."""
    with DynamicLab(objects, unique, directory) as lab:
        lab.make_node()
        yield lab
