"""Read a pool of logical volumes from outside its agent: nothing is locked or activated."""

from __future__ import annotations

import os
import shutil

from localvolume.backends.lvm import together
from localvolume.backends.lvm.copying import THICK
from localvolume.backends.lvm.session import usages
from localvolume.backends.lvm.tools import translated
from localvolume.backends.lvm.view import report_of, view_of
from localvolume.backends.model import Abilities, BackendFailed, PoolReport
from localvolume.config.pools import LvmConfig, PoolConfig
from localvolume.host.lvm.commands import Lvm
from localvolume.host.process.commandsync import Run


def abilities_of(of: LvmConfig) -> Abilities:
    """What can be done in the group."""
    thin = bool(of.thin_pool)
    why_not = "" if shutil.which("mkfs.ext4") else "there is no mkfs.ext4: install e2fsprogs"
    return Abilities(
        enforce=True,
        why_not=why_not,
        block=True,
        filesystem=not why_not,
        no_copies="" if thin else THICK,
        full_copies=True,
        reserves=not thin,
        no_groups=together.why_not(os.uname().release) if thin else THICK,
    )


def survey(config: PoolConfig, run: Run) -> PoolReport:
    """What a look would find; `problem` if there is no such pool, or it cannot be read."""
    if config.lvm is None or not config.lvm.group:
        return PoolReport(name=config.name, problem="no volume group matches its pattern")
    # Not through the gate: a survey repairs nothing.
    lvm = Lvm(run, config.lvm.command_prefix, discovery=config.lvm.discovery)
    try:
        with translated(config.name):
            seen = view_of(config.lvm, *lvm.whole(config.lvm.group))
            able = abilities_of(config.lvm)
            return report_of(config.name, seen, abilities=able, usage=usages(seen))
    except BackendFailed as error:
        return PoolReport(name=config.name, problem=str(error))
