"""What is on record of a lab's volumes, read and written as only root on the node can."""

import os
from pathlib import Path

from localvolume.host.filesystem.volumenotes import NAME
from localvolume.volumes.record import Record, decoded
from tests.cluster.support_agent import Lab
from tests.suite.api import CLAIMS


def recorded(path: Path) -> Record:
    """The record on the root of a filesystem."""
    return decoded(os.getxattr(path, NAME))


def records_of_devices(lab: Lab) -> list[Record]:
    """The records of the node's directory."""
    if not lab.records.is_dir():
        return []
    return [decoded(path.read_bytes()) for path in sorted(lab.records.glob("*.json"))]


def until_held(lab: Lab, path: Path, claim: str) -> None:
    """Wait until the claim of that name holds the filesystem by its record."""
    uid = uid_of(lab, claim)
    lab.until(lambda: recorded(path), lambda record: record.claim == uid)


def until_device_held(lab: Lab, claim: str) -> None:
    """Wait until the claim of that name holds the node's one recorded device."""
    uid = uid_of(lab, claim)
    lab.until(lambda: [one.claim for one in records_of_devices(lab)], lambda held: held == [uid])


def uid_of(lab: Lab, claim: str) -> str:
    return str(lab.plane.request("GET", f"{CLAIMS}/{claim}")["metadata"]["uid"])
