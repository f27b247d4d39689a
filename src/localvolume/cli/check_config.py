"""`localvolume check-config FILE...`: whether an agent would accept a configuration, or why not.

A FILE is a file of the ConfigMap's directory (its name is the key), such a directory, or a manifest
with ConfigMaps. Several are joined as if they were in one directory. The files of local-path's
ConfigMap (config.json and those beside it) are checked as the agent reads them for local-path, for
all nodes. TopoLVM's lvmd.yaml is checked as the agent reads it.

Exit status: 0 good (warnings or not), 1 problems, 2 wrong usage.
"""

import argparse
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any

from localvolume.cli.judging import problem_of_directory, problems_of_pools
from localvolume.config import loading
from localvolume.config.flags.table import Flag, add_flags, output
from localvolume.config.foreign import localpath, lvmd
from localvolume.config.model import ConfigurationInvalid, Problem
from localvolume.config.pools import PoolConfig, faults_between
from localvolume.config.syntax import document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check a configuration as the agent would. A FILE is a key's file (its name is the key), "
        "a directory of such files, or a manifest with ConfigMaps; several are joined to one "
        "configuration. local-path's config.json and the files beside it are checked as well, and "
        "TopoLVM's lvmd.yaml."
    )
    parser.epilog = "Exit status: 0 good, 1 problems, 2 wrong usage."
    parser.add_argument("files", metavar="FILE", nargs="+", help="the files or directories to read")
    text = "do not look for executables, directories and pools on this machine"
    add_flags(parser, Flag("--no-host-checks", "", text), output("text", "json"))


def run(args: argparse.Namespace) -> int:
    """Prints what is wrong. Returns 0 if good, 1 for problems, 2 if a file does not exist."""
    missing = [path for path in args.files if not os.path.exists(path)]
    if missing:
        for path in missing:
            print(f"localvolume check-config: there is no {path}", file=sys.stderr)
        return 2
    sources: list[loading.Source] = []
    problems: list[Problem] = []
    for path in args.files:
        more, wrong = _gather(path)
        sources += more
        problems += wrong
    found = _check(sources, problems, host_checks=not args.no_host_checks)
    if not args.no_host_checks and not found.problems:
        found.warnings += _of_this_host(found)
    if args.output == "json":
        print(json.dumps(_as_json(found), indent=2))
    else:
        for problem in found.problems:
            print(problem)
        for warning in found.warnings:
            print(f"warning: {warning}")
        if not found.problems:
            print(f"good: {_counted(found)}")
    return 1 if found.problems else 0


@dataclass(slots=True)
class _Found:
    """What all the files together say, and what is wrong with them."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    pools: list[PoolConfig] = field(default_factory=list)
    filters: int = 0
    directories: list[tuple[str, str, str]] = field(default_factory=list)


def _check(sources: list[loading.Source], wrong: list[Problem], *, host_checks: bool) -> _Found:
    """Checks our keys and those of other tools, each kind if there are any, then all together."""
    has_foreign = any(source.key == localpath.CONFIG for source in sources)
    foreign = [one for one in sources if has_foreign and one.key in localpath.FILES]
    topolvm = [one for one in sources if one.key == lvmd.FILE]
    own = [one for one in sources if one not in (*foreign, *topolvm)]
    found = _Found()
    if own or wrong or not (foreign or topolvm):
        try:
            configuration = loading.build(own, wrong, host_checks=host_checks)
        except ConfigurationInvalid as invalid:
            found.problems += invalid.problems
            found.warnings += invalid.warnings
        else:
            found.warnings += configuration.warnings
            found.classes = list(configuration.storage_classes)
            found.pools += configuration.pools
            found.filters = len(configuration.disks.filters) if configuration.disks else 0
            found.directories = [
                (one.name, one.host_dir, one.mount_dir)
                for one in configuration.storage_classes.values()
            ]
    if foreign:
        try:
            read = localpath.read(foreign, None)
        except ConfigurationInvalid as invalid:
            found.problems += invalid.problems
            found.warnings += invalid.warnings
        else:
            found.warnings += read.warnings
            found.pools += read.pools
    for source in topolvm:
        try:
            classes = lvmd.read(source.file, source.text)
        except ConfigurationInvalid as invalid:
            found.problems += invalid.problems
            found.warnings += invalid.warnings
        else:
            found.warnings += classes.warnings
            found.pools += classes.pools
    if (foreign or topolvm) and not found.problems:
        # Wrong only on a node that has both; the files do not say whether one does.
        among = faults_between([pool for pool in found.pools if pool.flavor == "local-path"])
        found.warnings += [
            Problem("", "pools", f"{fault}: no node may have both")
            for fault in faults_between(found.pools, found.directories)
            if fault not in among
        ]
    return found


def _of_this_host(found: _Found) -> list[Problem]:
    """What an agent would report here. Only warnings: the configuration is for other nodes too."""
    return [
        Problem("", f"storageClassMap.{name}", f"on this machine, {why}")
        for name, host_dir, mount_dir in found.directories
        if (why := problem_of_directory(mount_dir, host_dir))
    ] + [
        Problem("", f"pools.{name}", f"on this machine, the pool cannot be used: {why}")
        for name, why in problems_of_pools(found.pools).items()
    ]


def _counted(found: _Found) -> str:
    classes, pools = len(found.classes), len(found.pools)
    parts = [f"{classes} {'class' if classes == 1 else 'classes'}"] if classes or not pools else []
    if pools:
        parts.append(f"{pools} {'pool' if pools == 1 else 'pools'}")
    if found.filters:
        noun = "filter" if found.filters == 1 else "filters"
        parts.append(f"{found.filters} {noun} of disks")
    return ", ".join(parts)


def _gather(path: str) -> tuple[list[loading.Source], list[Problem]]:
    """The keys in the files that one argument names."""
    if os.path.isdir(path):
        return loading.read_directory(path, prefix=os.path.join(path, ""))
    text = loading.read_file(path)
    if not isinstance(text, str):
        return [], [Problem(path, "", text[0])]
    try:
        manifest = loading.manifest_sources(path, text)
    except document.Unreadable as error:
        return [], [Problem(path, "", str(error))]
    if manifest is None:
        return [loading.Source(path, os.path.basename(path), text)], []
    if not manifest:
        return [], [Problem(path, "", "holds manifests, but no ConfigMap with data")]
    return manifest, []


def _as_json(found: _Found) -> dict[str, Any]:
    def rows(of: list[Problem]) -> list[dict[str, str]]:
        return [{"file": one.file, "key": one.key, "reason": one.reason} for one in of]

    return {
        "valid": not found.problems,
        "classes": found.classes,
        "pools": [pool.name for pool in found.pools],
        "problems": rows(found.problems),
        "warnings": rows(found.warnings),
    }
