"""A node on which all is under way, until somebody cuts its power (test_after.py goes on)."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from pathlib import Path

import pytest

from localvolume.backends.lvm.record import COPIED
from localvolume.backends.lvm.zeroing import Zeroing
from localvolume.host.lvm.commands import Lvm
from tests.host.support_devices import command
from tests.kernel.inside.support_lvm import EXTENT, begin
from tests.kernel.inside.support_lvm_csi import POOL
from tests.kernel.support_guest import POWER_CUT
from tests.suite.names import CSI
from tests.suite.units import MIB

from .support_outage import (
    ELSEWHERE,
    NOTED,
    OBJECTS,
    ROOT_DISK,
    SIZE,
    THICK,
    THICK_DISK,
    THIN,
    THIN_DISK,
    Numbers,
    fill,
    node_on,
    tell,
)

#: What is first in PATH. The command that is to note so much of the copy does not come back, nor
#: does the one that makes a thin snapshot, and then no other of that group.
_SCRIPT = """#!/bin/sh
case "$* " in *" --addtag localvolume.dev/{copied}={stop} "*) : >{half}; exec sleep 100000 ;; esac
case "$* " in *" {group}/"*|*" {group} "*) ;; *) exec {real} "$@" ;; esac
case "$*" in "lvcreate "*" --snapshot "*) [ -e {cut} ] || {act}: >{cut} ;; esac
[ ! -e {cut} ] || exec sleep 100000
exec {real} "$@"
"""


@pytest.mark.parametrize(("what", "cuts"), [("kept", False), ("given-up", True)])
def test_its_power_is_cut(
    tmp_path: Path, lvm: Lvm, monkeypatch: pytest.MonkeyPatch, what: str, cuts: bool
) -> None:
    """Volumes are written to, a thick one is half copied, and a thin one is being cut: LVM has not
    done that yet, or (`cuts`) has, and nobody knows."""
    command("mkfs.ext4", "-q", ROOT_DISK)
    begin(THICK, THICK_DISK)
    begin(THIN, THIN_DISK)
    lvm.create_pool(THIN, "pool", POOL)
    with node_on(tmp_path, lvm) as node:
        node.make_node()
        node.pools()
        node.hurry_dynamic(zeroing=Zeroing(piece=EXTENT, seconds=0.0))
        marks = _never_coming_back(tmp_path, monkeypatch, cuts=cuts)
        node.serve_here()
        handles, writers = {}, {}
        for pool in ("thick", "thin"):
            parameters = {"pool": pool, "fullCopies": "allowed"}
            cls = node.storage_class(pool, provisioner=CSI, parameters=parameters)
            claim = node.claim(cls, size=f"{SIZE // MIB}Mi", name=f"{what}-{pool}")
            handles[pool] = node.handle(claim)
            place = node.caller.use(handles[pool])
            fill(place)
            writers[pool] = Numbers(place / "numbers")
        node.until(lambda: [one.last for one in writers.values()], lambda them: min(them) > 20)
        asked = {pool: one.last for pool, one in writers.items()}
        full = node.snapshot_class(parameters={"fullCopies": "allowed"})
        for pool in handles:
            name = f"{what}-{pool}"
            source = {"persistentVolumeClaimName": name}
            node.make_snapshot(name, volumeSnapshotClassName=full, source=source)
        node.until(lambda: all(mark.exists() for mark in marks), bool)
        # Whatever has been cut by now lacks what is written from now on.
        cut = {pool: one.last + 1 for pool, one in writers.items()}
        node.until(
            lambda: [writers[pool].last - cut[pool] for pool in cut], lambda them: min(them) > 20
        )
        node.sandbox.halt(OBJECTS)
        written = {pool: one.last for pool, one in writers.items()}
        tell(handles=handles, asked=asked, cut=cut, written=written)
        (ELSEWHERE / POWER_CUT).touch()
        while True:
            time.sleep(60)


def _never_coming_back(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *, cuts: bool
) -> list[Path]:
    """Have those commands be so from now on; the files are there once they have not come back."""
    real = shutil.which("lvm")
    assert real is not None
    programs, *marks = (directory / name for name in ("programs", "half", "cut"))
    programs.mkdir()
    script = programs / "lvm"
    words = {
        "real": shlex.quote(real),
        "group": THIN,
        "copied": COPIED,
        "stop": NOTED + EXTENT,
        "half": marks[0],
        "cut": marks[1],
        "act": f'{shlex.quote(real)} "$@" && ' if cuts else "",
    }
    script.write_text(_SCRIPT.format(**words))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return marks
