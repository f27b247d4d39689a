"""Read a pool of logical volumes from outside its agent: nothing is locked or activated."""

from __future__ import annotations

from localvolume.backends.lvm.tools import translated
from localvolume.backends.lvm.view import report_of, view_of
from localvolume.backends.model import Abilities, BackendFailed, PoolReport
from localvolume.config.pools import PoolConfig
from localvolume.host.lvm.commands import Lvm
from localvolume.host.process.commandsync import Run


def survey(config: PoolConfig, run: Run) -> PoolReport:
    """Its records and orphans; `problem` if there is no such pool, or it cannot be read."""
    if config.lvm is None or not config.lvm.group:
        return PoolReport(name=config.name, problem="no volume group matches its pattern")
    # Not through the gate: a survey repairs nothing.
    lvm = Lvm(run, config.lvm.command_prefix, discovery=config.lvm.discovery)
    try:
        with translated(config.name):
            seen = view_of(config.lvm, *lvm.whole(config.lvm.group))
            return report_of(config.name, seen, abilities=Abilities(enforce=True))
    except BackendFailed as error:
        return PoolReport(name=config.name, problem=str(error))
