"""A node whose agent serves CSI: pools, the kubelet's directory, the sockets, and csi-sanity."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from localvolume.host.mount.mounts import read_mount_table
from tests.cluster.support_csicalls import UNANSWERED
from tests.cluster.support_dynamic import DynamicLab, MadePool
from tests.cluster.support_loops import release
from tests.cluster.support_objects import Objects
from tests.cluster.support_program import Program
from tests.host.support_csi_wire import call
from tests.host.support_mounts import MNT_DETACH, umount
from tests.suite import csitools, speed
from tests.suite.names import CSI

MUTABLE = {"writeBytesPerSecond": "100Mi", "readOps": "5000"}
"""What a VolumeAttributesClass may say."""

_SANITY_SECONDS = 600


class CsiLab(DynamicLab):
    """A lab whose agent is also the driver: `pool`, then `serve`."""

    def __init__(self, objects: Objects, unique: str, directory: Path) -> None:
        super().__init__(objects, unique, directory)
        self.kubelet = self.kubelet_directory()
        for name in ("plugins", "plugins_registry", "pods"):
            (self.kubelet / name).mkdir(exist_ok=True)
        self.socket = self.kubelet / "plugins" / CSI / "csi.sock"
        self.registration = self.kubelet / "plugins_registry" / f"{CSI}-reg.sock"
        self.made_pools: list[MadePool] = []

    def kubelet_directory(self) -> Path:
        """One that is there; not below pytest's, whose paths are too long for a socket's."""
        return Path(tempfile.mkdtemp(prefix="lv-csi-"))

    def csi_pool(self, name: str = "fast", **keys: object) -> MadePool:
        """A pool as of `pool`, of which nothing is left in the end."""
        made = self.pool(name, **keys)  # type: ignore[arg-type]
        self.made_pools.append(made)
        return made

    def serve(self, *arguments: str) -> Program:
        """Start the agent, and wait until it answers calls, and the kubelet could register it."""
        program = self.start_process(
            "--csi", *arguments, variables={"KUBELET_DIR": str(self.kubelet)}
        )
        self._until_served()
        return program

    def serve_here(self, *, cgroup_dir: str = "") -> None:
        """The same in a thread of the tests' process, which is there sooner."""
        self.start(csi=True, kubelet_directory=str(self.kubelet), cgroup_dir=cgroup_dir)
        self._until_served()

    def _until_served(self) -> None:
        self.until(self.serves, bool)
        self.until(self.registration.exists, bool)

    def serves(self) -> bool:
        """Whether an agent answers and can serve: the sockets of one that was killed stay."""
        with contextlib.suppress(*UNANSWERED):
            return bool(self.call("Probe").ready.value)
        return False

    def call(self, rpc: str, **fields: Any) -> Any:
        """The answer of the agent to a call of CSI. Raises GRPCError, and UNANSWERED without it."""
        return asyncio.run(call(self.socket, rpc, **fields))

    def __exit__(self, *words: object) -> None:
        try:
            self.stop()
            for point in reversed(mounted_below(self.kubelet)):
                umount(point, MNT_DETACH)
            for pool in self.made_pools:
                release(pool.directory)
        finally:
            super().__exit__(*words)
            shutil.rmtree(self.kubelet)


@contextlib.contextmanager
def csi_lab_for(objects: Objects, unique: str, directory: Path) -> Iterator[CsiLab]:
    """A lab with its node; everything of it goes in the end."""
    with CsiLab(objects, unique, directory) as lab:
        lab.make_node()
        yield lab


def mounted_below(place: Path) -> list[str]:
    """The mount points at or below a directory, those that lie upon others last."""
    top = os.path.realpath(place)
    points = [mount.mount_point for mount in read_mount_table()]
    return [point for point in points if point == top or point.startswith(f"{top}/")]


@dataclass(frozen=True)
class Sanity:
    """What csi-sanity found: the cases by name, and why those were skipped or failed."""

    passed: frozenset[str]
    skipped: Mapping[str, str]
    failed: Mapping[str, str]

    @property
    def failed_first(self) -> str:
        """The first failure: what it leaves behind may make later cases fail."""
        return next((f"{name}: {why}" for name, why in self.failed.items()), "")


def sanity(
    lab: CsiLab,
    parameters: Mapping[str, str],
    *,
    access: str,
    size: int,
    grown: int,
    leave_out: Collection[str] = (),
    seconds: float = _SANITY_SECONDS,
    snapshots: Mapping[str, str] | None = None,
) -> Sanity:
    """The cases of csi-sanity against the agent's socket, with volumes of that size.

    `access` is "mount" or "block", `snapshots` are the parameters of snapshots. Cases of which the
    whole names are in `leave_out` are skipped. All of them together may take `seconds`.
    """
    given = lab.directory / "parameters.yaml"
    given.write_text(json.dumps(dict(parameters)))
    of_snapshots = lab.directory / "snapshots.yaml"
    of_snapshots.write_text(json.dumps(dict(snapshots or {})))
    mutable = lab.directory / "mutable.yaml"
    mutable.write_text(json.dumps(MUTABLE))
    report = lab.directory / "sanity.xml"
    where = lab.kubelet / "sanity"
    where.mkdir()
    done = subprocess.run(
        [
            str(csitools.provide("csi-sanity")),
            f"--csi.endpoint={lab.socket}",
            f"--csi.mountdir={where / 'mount'}",
            f"--csi.stagingdir={where / 'staging'}",
            f"--csi.testvolumeparameters={given}",
            f"--csi.testsnapshotparameters={of_snapshots}",
            f"--csi.testvolumemutableparameters={mutable}",
            f"--csi.testvolumeaccesstype={access}",
            f"--csi.testvolumesize={size}",
            f"--csi.testvolumeexpandsize={grown}",
            f"--ginkgo.junit-report={report}",
            "--ginkgo.no-color",
            *([f"--ginkgo.skip={'|'.join(map(re.escape, leave_out))}"] if leave_out else []),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds * speed.factor(),
        check=False,
    )
    assert report.exists(), f"csi-sanity made no report: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return read_report(report)


def read_report(path: Path) -> Sanity:
    """The cases of a JUnit report of csi-sanity; those that its authors do not run are left out."""
    passed: set[str] = set()
    skipped: dict[str, str] = {}
    failed: dict[str, str] = {}
    for case in ET.parse(path).getroot().iter("testcase"):
        name = case.get("name", "").removeprefix("[It] ")
        status = case.get("status", "")
        if status == "passed":
            passed.add(name)
        elif status == "skipped":
            told = case.find("skipped")
            skipped[name] = "" if told is None else told.get("message", "")
        elif status != "pending":
            failed[name] = _why(case)
    return Sanity(frozenset(passed), skipped, failed)


def _why(case: ET.Element) -> str:
    return "\n".join(
        f"{told.get('message', '')} {told.text or ''}".strip()
        for told in case
        if told.tag not in ("system-out", "system-err")
    )
