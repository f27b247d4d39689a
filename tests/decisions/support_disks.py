"""Disks and filters for the decisions about them: blank and whole unless something is said."""

from dataclasses import replace
from typing import Any

import msgspec

from localvolume.config.disks import DiskFilter, DiskMatch, DisksConfig
from localvolume.disks.model import Disk, DiskFacts, DiskPlan, Inside, Judged
from localvolume.disks.plan.plan import plan
from localvolume.disks.plan.told import Telling, manifest, note_of
from localvolume.kube.objects import CSIStorageCapacity, OwnerReference
from localvolume.volumes.manifest import NodeFacts
from tests.suite.units import GIB

NODE = "node-1"


def disk(name: str = "sda", **keys: Any) -> Disk:
    """A blank SATA disk of 100 GiB with a WWN of its own, looked at."""
    fields: dict[str, Any] = {
        "name": name,
        "node": f"/dev/{name}",
        "device": f"8:{sum(name.encode())}",
        "size_bytes": 100 * GIB,
        "identity": {"kind": "block", "wwn": f"naa.5000{name}", "serial": f"S-{name}"},
        "model": "SAMSUNG_MZ7",
        "vendor": "ATA",
        "rotational": False,
        "transport": "sata",
        "links": (f"ata-SAMSUNG_{name}", f"wwn-0x5000{name}"),
        "inside": Inside(),
    }
    return Disk(**{**fields, **keys})


def inside(made: Disk, **keys: Any) -> Disk:
    return replace(made, inside=Inside(**keys))


def wanted(**keys: Any) -> DiskFilter:
    """A filter that means every whole disk of at least 1 GiB on SATA."""
    match = keys.pop("match", DiskMatch(transport="sata"))
    fields: dict[str, Any] = {
        "name": "ssds",
        "class_name": "fast",
        "host_dir": "/mnt/fast",
        "mount_dir": "/seen/fast",
        "match": match,
    }
    return DiskFilter(**{**fields, **keys})


def planned(*disks: Disk, filters: Any = None, approved: Any = (), node: str = NODE) -> DiskPlan:
    config = DisksConfig(
        filters=(wanted(),) if filters is None else tuple(filters), approved=frozenset(approved)
    )
    return plan(DiskFacts(node_name=node, config=config, disks=disks))


def judged(made: Disk, *, filters: Any = None, approved: Any = ()) -> Judged:
    (row,) = planned(made, filters=filters, approved=approved).rows
    return row


def disks_of(told: DiskPlan | str, name: str = "n1") -> CSIStorageCapacity:
    """The object in which an agent tells of a plan's disks; a text is its note as it is."""
    note = told if isinstance(told, str) else note_of(told)
    owner = OwnerReference(api_version="v1", kind="Pod", name="lvp", uid="p")
    body = manifest(Telling(note, NodeFacts(name, f"uid-{name}", name), owner), "lvp")
    return msgspec.convert(body, CSIStorageCapacity)
