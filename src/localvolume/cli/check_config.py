"""`localvolume check-config FILE...`: whether an agent would accept a configuration, or why not.

A FILE is a file of the ConfigMap's directory (its name is the key), such a directory, or a manifest
with ConfigMaps. Several are joined as if they were in one directory. The files of local-path's
ConfigMap (config.json and those beside it) are checked as the agent reads them for local-path, for
all nodes. TopoLVM's lvmd.yaml is checked as the agent reads it. The FILE `-` is a manifest on
standard input.

On a node, what its agent would report of directories, pools and executables is a problem, too.
Elsewhere they are not looked at, and the last line says so.

Exit status: 0 good (warnings or not), 1 problems, 2 wrong usage.
"""

import argparse
import os
import sys
from dataclasses import dataclass, field
from typing import Any, Final

from localvolume.cli.judging import problem_of_directory, problems_of_pools
from localvolume.cli.output.refusal import say_all
from localvolume.cli.rows import print_value
from localvolume.config import loading, schema
from localvolume.config.flags.table import Flag, add_flags, output
from localvolume.config.foreign import localpath, lvmd
from localvolume.config.model import ConfigurationInvalid, Problem
from localvolume.config.pools import PoolConfig, faults_between
from localvolume.config.syntax import document
from localvolume.config.variables import KUBELET_DIR


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check a configuration as the agent would. A FILE is a key's file (its name is the key), "
        "a directory of such files, or a manifest with ConfigMaps; several are joined to one "
        "configuration. local-path's config.json and the files beside it are checked as well, and "
        "TopoLVM's lvmd.yaml. The FILE - is a manifest on standard input."
    )
    parser.epilog = "Exit status: 0 good, 1 problems, 2 wrong usage."
    parser.add_argument("files", metavar="FILE", nargs="+", help="the files or directories to read")
    add_flags(
        parser,
        Flag("--host-checks", "",
             "look at the executables, directories and pools of this machine; what its agent would "
             "report is a problem (default: for root, where a kubelet is)"),
        Flag("--no-host-checks", "", "do not look at them"),
        output("text", "json", "yaml"),
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Prints what is wrong. Returns 0 if good, 1 for problems, 2 for wrong usage."""
    if usage := _wrong_usage(args):
        say_all("check-config", usage)
        return 2
    host_checks = args.host_checks or (not args.no_host_checks and _is_node())
    sources: list[loading.Source] = []
    problems: list[Problem] = []
    for path in args.files:
        more, wrong = _gather(path)
        sources += more
        problems += wrong
    found = _check(sources, problems, host_checks=host_checks)
    if host_checks and not found.problems:
        found.problems += _of_this_host(found)
    if args.output != "text":
        print_value(_as_data(found, host_checks=host_checks), args.output)
    else:
        for problem in found.problems:
            print(problem)
        for warning in found.warnings:
            print(f"warning: {warning}")
        if not found.problems:
            print(f"good: {_counted(found)}")
            if not (host_checks or args.no_host_checks):
                print(_NOT_LOOKED_AT)
    return 1 if found.problems else 0


_NOT_LOOKED_AT: Final = (
    "No executables, directories or pools were looked at: run this as root on a node, or with"
    " --host-checks."
)
_STANDARD_INPUT: Final = "-"


def _wrong_usage(args: argparse.Namespace) -> list[str]:
    """What cannot be meant, each in a sentence."""
    wrong = [
        f"there is no {path}"
        for path in args.files
        if path != _STANDARD_INPUT and not os.path.exists(path)
    ]
    if args.files.count(_STANDARD_INPUT) > 1:
        wrong.append("standard input (-) can be read once only")
    if args.host_checks and args.no_host_checks:
        wrong.append("say --host-checks or --no-host-checks, not both")
    return wrong


def _is_node() -> bool:
    """Whether an agent may run here, and sees no more than we do: a kubelet is here, and we are
    root."""
    try:
        kubelet = KUBELET_DIR.read(os.environ)
    except ValueError:
        return False
    return os.geteuid() == 0 and bool(kubelet) and os.path.isdir(f"{kubelet}/pods")


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
    """What an agent would report here."""
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
    if path == _STANDARD_INPUT:
        return _gather_manifest("standard input", loading.read_text(sys.stdin.buffer), "")
    if os.path.isdir(path):
        return loading.read_directory(path, prefix=os.path.join(path, ""))
    return _gather_manifest(path, loading.read_file(path), os.path.basename(path))


def _gather_manifest(
    file: str, text: str | tuple[str], key: str
) -> tuple[list[loading.Source], list[Problem]]:
    """The keys of a file that was read; `key` is that of one without manifests, "" if unknown."""
    if not isinstance(text, str):
        return [], [Problem(file, "", text[0])]
    try:
        manifest = loading.manifest_sources(file, text, _known())
    except document.Unreadable as error:
        return [], [Problem(file, "", str(error))]
    if manifest is None and key:
        return [loading.Source(file, key, text)], []
    if manifest is None:
        return [], [Problem(file, "", "holds no manifest; a key's file is read by its name only")]
    if not manifest:
        return [], [Problem(file, "", "holds manifests, but no ConfigMap with data")]
    return manifest, []


def _known() -> set[str]:
    """The keys that say whether a ConfigMap is one of ours, or of a provisioner we replace."""
    ours = {key.name for key in schema.top_keys(host_checks=False)}
    return {*ours, *localpath.FILES, lvmd.FILE}


def _as_data(found: _Found, *, host_checks: bool) -> dict[str, Any]:
    def rows(of: list[Problem]) -> list[dict[str, str]]:
        return [{"file": one.file, "key": one.key, "reason": one.reason} for one in of]

    return {
        "valid": not found.problems,
        "hostChecks": host_checks,
        "classes": found.classes,
        "pools": [pool.name for pool in found.pools],
        "problems": rows(found.problems),
        "warnings": rows(found.warnings),
    }
