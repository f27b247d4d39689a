"""Groups of snapshots on a real cluster: a lab whose volumes can be cut together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.cluster.support_dynamic import Claim, MadePool
from tests.cluster.support_objects import Objects
from tests.cluster.support_snapshots import SNAPSHOTS, Content, Snapshot, SnapshotLab, read
from tests.suite.api import MERGE
from tests.suite.names import CSI
from tests.suite.units import GIB

_API = "/apis/groupsnapshot.storage.k8s.io/v1"
GROUP_CONTENTS = f"{_API}/volumegroupsnapshotcontents"
GROUPS = f"{_API}/namespaces/default/volumegroupsnapshots"
GROUP_CLASSES = f"{_API}/volumegroupsnapshotclasses"

GROUP_BEING_CREATED = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created"

GROUP_BOUND = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-bound-protection"

Group = dict[str, Any]


class GroupLab(SnapshotLab):
    """A lab with groups: `image_pool`, `serve`, `together`, then `group`."""

    def image_pool(self, name: str = "fast") -> MadePool:
        """A pool whose volumes can be cut together."""
        return self.csi_pool(name, backend="image", fs_type="xfs", size=2 * GIB)

    def together(self, count: int = 2, app: str = "db", **keys: Any) -> list[Claim]:
        """So many claims with their volumes, which one selector finds."""
        told = {"size": "16Mi", "labels": {"app": f"{self.unique}-{app}"}, **keys}
        return [self.claimed(**told) for _ in range(count)]

    def group_class(
        self, policy: str = "Delete", parameters: Mapping[str, str] | None = None
    ) -> str:
        self._count += 1
        name = f"{self.unique}-group-{policy.lower()}-{self._count}"
        body = {
            **of_group_kind("VolumeGroupSnapshotClass", name),
            "driver": CSI,
            "deletionPolicy": policy,
            "parameters": dict(parameters or {}),
        }
        self.objects.make(GROUP_CLASSES, body)
        return name

    def group(self, class_name: str = "", app: str = "db", name: str = "", **source: Any) -> Group:
        """A VolumeGroupSnapshot of the claims that were made together."""
        self._count += 1
        chosen = source or {"selector": {"matchLabels": {"app": f"{self.unique}-{app}"}}}
        body = {
            **of_group_kind("VolumeGroupSnapshot", name or f"{self.unique}-group-{self._count}"),
            "spec": {
                "volumeGroupSnapshotClassName": class_name or self.group_class(),
                "source": chosen,
            },
        }
        made: Group = self.plane.request("POST", GROUPS, body)
        return made

    def read_group(self, group: Group) -> Group | None:
        found: Group | None = read(self.plane, f"{GROUPS}/{group['metadata']['name']}")
        return found

    def group_ready(self, group: Group) -> Group:
        """The VolumeGroupSnapshot once it can be used."""
        found: Group | None = self.until(
            lambda: self.read_group(group),
            lambda one: one and one.get("status", {}).get("readyToUse"),
        )
        assert found is not None
        return found

    def group_content(self, group: Group) -> Content | None:
        return self.group_content_named(f"groupsnapcontent-{group['metadata']['uid']}")

    def group_content_named(self, name: str) -> Content | None:
        found: Content | None = read(self.plane, f"{GROUP_CONTENTS}/{name}")
        return found

    def until_group_content(self, group: Group, wanted: Any) -> Content:
        found: Content | None = self.until(
            lambda: self.group_content(group), lambda one: one and wanted(one)
        )
        assert found is not None
        return found

    def group_failing(self, group: Group, text: str) -> Content:
        """The group's content once its status says that."""
        return self.until_group_content(
            group, lambda one: text in one.get("status", {}).get("error", {}).get("message", "")
        )

    def group_tidy(self, group: Group) -> Content:
        """The content once nothing is being cut for it any more, and all is told."""
        return self.until_group_content(
            group,
            lambda one: (
                one.get("status", {}).get("readyToUse")
                and GROUP_BEING_CREATED not in one["metadata"].get("annotations", {})
            ),
        )

    def members(self, group: Group, count: int = 2) -> dict[str, Snapshot]:
        """The VolumeSnapshots of the group by the name of their claim, once all can be used."""

        def found() -> dict[str, Snapshot]:
            uid = group["metadata"]["uid"]
            return {
                one["spec"]["source"]["persistentVolumeClaimName"]: one
                for one in self.plane.request("GET", SNAPSHOTS)["items"]
                if any(ref["uid"] == uid for ref in one["metadata"].get("ownerReferences", []))
                and one.get("status", {}).get("readyToUse")
            }

        return self.until(found, lambda them: len(them) == count)

    def make_group_content(self, name: str, **spec: Any) -> Content:
        """A VolumeGroupSnapshotContent that a person makes."""
        body = {
            **of_group_kind("VolumeGroupSnapshotContent", name),
            "spec": {"driver": CSI, "deletionPolicy": "Delete", **spec},
        }
        made: Content = self.plane.request("POST", GROUP_CONTENTS, body)
        return made

    def patch_group_content(self, name: str, body: Any) -> None:
        self.plane.request("PATCH", f"{GROUP_CONTENTS}/{name}", body, content_type=MERGE)

    def delete_group(self, group: Group) -> None:
        # Without its finalizer, the snapshot-controller would never hear of the deletion, and not
        # say on the content that it may go.
        self.until(
            lambda: self.read_group(group),
            lambda one: one and GROUP_BOUND in one["metadata"].get("finalizers", []),
        )
        self.plane.request("DELETE", f"{GROUPS}/{group['metadata']['name']}")

    def take_group_away(self, group: Group) -> None:
        """Delete a VolumeGroupSnapshot and wait until it is gone."""
        self.delete_group(group)
        self.until(lambda: self.read_group(group), lambda found: found is None)

    def _remove_objects(self) -> None:
        for collection in (GROUPS, GROUP_CONTENTS):
            for found in (read(self.plane, collection) or {"items": []})["items"]:
                if self.unique in str(found["spec"]) or self.unique in found["metadata"]["name"]:
                    path = f"{collection}/{found['metadata']['name']}"
                    self._ignore_missing("PATCH", path, {"metadata": {"finalizers": None}})
                    self._ignore_missing("DELETE", path)
        super()._remove_objects()


def of_group_kind(kind: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "groupsnapshot.storage.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
    }


@contextlib.contextmanager
def group_lab_for(objects: Objects, unique: str, directory: Path) -> Iterator[GroupLab]:
    """A lab with its node; everything of it goes in the end."""
    with GroupLab(objects, unique, directory) as lab:
        lab.make_node()
        yield lab
