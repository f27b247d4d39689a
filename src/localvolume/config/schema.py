"""Every key of the configuration: its type, default and meaning, and how its value is read."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from yaml.nodes import Node

from localvolume.config.directories import Claim, check_overlaps, directory
from localvolume.config.model import ClassConfig, Problem, Resources
from localvolume.config.syntax import names, scheduling, values
from localvolume.config.syntax.keytable import Key, KeyDoc, Read, Reader, read_keys
from localvolume.config.syntax.readers import (
    Place,
    boolean,
    did_you_mean,
    duration,
    entries,
    list_of,
    one_of,
    quoted,
    text,
    whole_number,
)

SCRIPTS = "/scripts/"
FSCLEAN = SCRIPTS + "fsclean.sh"
BUILT_IN = ("quick_reset.sh", "dd_zero.sh", "shred.sh", "blkdiscard.sh")
"""Upstream's scripts for block devices; fsclean.sh, the fifth, is for directories."""

OURS = "localvolume"
METHODS = ("discard", "zero", "overwrite", "reset-signatures")
"""Our methods by their own names, as in ["localvolume", "zero"]."""

_TAKES_PASSES = {"dd_zero.sh": 1, "shred.sh": 0, "zero": 1, "overwrite": 1}
_MOST_PASSES = 100
_NUMBER = re.compile(r"[0-9]{1,3}")


def cleaner_command(node: Node, place: Place, *, host_checks: bool) -> tuple[str, ...] | None:
    """The command; `host_checks` also looks for its executable."""
    before = len(place.problems)
    command = list_of(text)(node, place) or ()
    if len(place.problems) > before:
        return None
    if not command:
        place.problem(
            "must not be empty: leave the key out for the default, "
            'or name a command, as ["/scripts/blkdiscard.sh"]'
        )
        return None
    for index, argument in enumerate(command):
        if "\0" in argument:
            place.at(index).problem("holds a NUL character")
            return None
    program = command[0]
    script = program.removeprefix(SCRIPTS)
    if program == OURS:
        _check_method(command, place)
    elif program.startswith(SCRIPTS) and script in BUILT_IN:
        _check_arguments(script, command[1:2], place.at(1))
        if len(command) > 1 + (script in _TAKES_PASSES):
            place.warning(f"{script} heeds only {1 + (script in _TAKES_PASSES)} of these words")
        _warn_of_signatures(script, place)
    elif host_checks and program != FSCLEAN:
        _check_executable(program, place.at(0))
    return command


def _check_method(command: tuple[str, ...], place: Place) -> None:
    name = command[1] if len(command) > 1 else ""
    if name not in METHODS:
        place.problem(
            f"{quoted(name)} is no method of ours; there are {', '.join(METHODS)}"
            + did_you_mean(name, METHODS)
        )
    elif len(command) > 2 + (name in _TAKES_PASSES):
        place.problem(f"holds too many words for {name}")
    else:
        _check_arguments(name, command[2:3], place.at(2))
        _warn_of_signatures(name, place)


def _check_arguments(name: str, arguments: tuple[str, ...], place: Place) -> None:
    if name not in _TAKES_PASSES:
        return
    least = _TAKES_PASSES[name]
    for given in arguments:
        if not (_NUMBER.fullmatch(given) and least <= int(given) <= _MOST_PASSES):
            place.problem(
                f"must be a number of passes, {least} to {_MOST_PASSES}, not {quoted(given)}"
            )


def _warn_of_signatures(name: str, place: Place) -> None:
    if name in ("quick_reset.sh", "reset-signatures"):
        place.warning(
            f"{name} removes signatures only: the last tenant's data stays readable on the "
            f"device; {SCRIPTS}blkdiscard.sh or {SCRIPTS}dd_zero.sh removes it"
        )


def _check_executable(program: str, place: Place) -> None:
    if "/" not in program:
        if not program or shutil.which(program) is None:
            place.problem(f"missing executable: there is no {quoted(program)} in PATH")
    elif not os.path.isabs(program):
        place.problem(f"must be an absolute path or a name found in PATH, not {quoted(program)}")
    elif not os.path.exists(program):
        hint = ""
        if program.startswith(SCRIPTS):
            hint = did_you_mean(program, tuple(SCRIPTS + name for name in BUILT_IN))
        place.problem(f"missing executable: there is no {quoted(program)}{hint}")
    elif not os.path.isfile(program) or not os.access(program, os.X_OK):
        place.problem(f"is not executable: {quoted(program)}")


if TYPE_CHECKING:
    from localvolume.config.flexvolume import FlexVolumeConfig
    from localvolume.config.pools import PoolConfig

_MOST_AT_ONCE: Final = 64


def class_keys(*, host_checks: bool) -> tuple[Key, ...]:
    """The keys of one class."""

    def cleaner(node: Node, place: Place) -> tuple[str, ...] | None:
        return cleaner_command(node, place, host_checks=host_checks)

    return (
        Key("hostDir", "host_dir", directory, "absolute path", "required",
             "the discovery directory on the host; each entry of it is a volume"),
        Key("mountDir", "mount_dir", directory, "absolute path", "required",
             "where the agent sees hostDir"),
        Key("blockCleanerCommand", "block_cleaner_command", cleaner, "list of words",
             "zeros for volumeMode Block, signatures removed for Filesystem",
             "how a released block device is cleaned"),
        Key("volumeMode", "volume_mode", values.volume_mode, "Filesystem or Block", "Filesystem",
             "how volumes are offered"),
        Key("accessMode", "access_mode",
             one_of("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"),
             "an access mode", "ReadWriteOnce", "the one access mode of every volume"),
        Key("fsType", "fs_type", values.fs_type, "word", "the kubelet's",
             "the filesystem made on a block device that is offered as Filesystem"),
        Key("namePattern", "name_pattern", values.name_pattern, "comma separated patterns", "*",
             "which entries are volumes"),
        Key("selector", "selector", scheduling.selector_terms, "list of NodeSelectorTerm", "[]",
             "further nodes that reach the same volume, for shared disks"),
        Key("firstUse", "first_use", one_of("require-empty", "trust", "clean"),
             "require-empty, trust or clean", "require-empty",
             "what to do with a volume found with something on it: leave it, offer it, clean it"),
        Key("cleaningConcurrency", "cleaning_concurrency", whole_number(1, _MOST_AT_ONCE),
             "whole number", "1", "how many volumes of one device are cleaned at the same time"),
        Key("cleaningTimeout", "cleaning_timeout_seconds", duration(1.0), "duration", "none",
             "how long one cleaning may take"),
    )  # fmt: skip


def storage_classes(*, host_checks: bool) -> Reader:
    """A reader of storageClassMap."""
    table = class_keys(host_checks=host_checks)

    def read(node: Node, place: Place) -> dict[str, ClassConfig] | None:
        classes: dict[str, ClassConfig] = {}
        claims: list[Claim] = []
        for name, value, where in entries(node, place):
            if fault := names.fault_of_object_name(name):
                where.problem(f"{quoted(name)} is no name of a StorageClass: it {fault}")
            good = _class(value, where, table)
            claims.append(_claim(name, good, where))
            if "host_dir" in good.values and "mount_dir" in good.values:
                classes[name] = ClassConfig(name=name, **good.values)
        check_overlaps(claims)
        return classes

    return read


def _class(node: Node, place: Place, table: Iterable[Key]) -> Read:
    read = read_keys(node, place, table)
    for key, field in (("hostDir", "host_dir"), ("mountDir", "mount_dir")):
        if field not in read.given:
            place.at(key).problem("is missing: a class needs hostDir and mountDir")
    command = read.values.get("block_cleaner_command") or ("",)
    if command[0] == FSCLEAN:
        note = place.at("blockCleanerCommand")
        if read.values.get("volume_mode") == "Block":
            note.problem("fsclean.sh deletes files and cannot clean a block device")
        else:
            note.warning("fsclean.sh cannot clean a block device, should this class find one")
    return read


def _claim(name: str, read: Read, place: Place) -> Claim:
    pattern = read.values.get("name_pattern", None if "name_pattern" in read.given else "*")
    return Claim(name, read.values.get("host_dir"), read.values.get("mount_dir"), pattern, place)


# Imported only when needed: most agents have none of them.


def _pools(node: Node, place: Place) -> tuple[PoolConfig, ...] | None:
    from localvolume.config import poolkeys

    return poolkeys.pools(node, place)


def _flexvolume(node: Node, place: Place) -> FlexVolumeConfig | None:
    from localvolume.config import flexkeys

    return flexkeys.flexvolume(node, place)


def _disks(node: Node, place: Place) -> object | None:
    from localvolume.config import diskkeys

    return diskkeys.disks(node, place)


def _job_resources(node: Node, place: Place) -> Resources | None:
    from localvolume.config.syntax import resources

    return resources.resources(node, place)


def top_keys(*, host_checks: bool) -> tuple[Key, ...]:
    """The keys of the ConfigMap, each a file in the directory."""
    return (
        Key("storageClassMap", "storage_classes", storage_classes(host_checks=host_checks),
             "mapping", "{}", "the classes, by the name of their StorageClass"),
        Key("pools", "pools", _pools, "mapping", "{}",
             "where volumes are made for claims, by the name of the pool"),
        Key("flexvolume", "flexvolume", _flexvolume, "mapping", "none",
             "how volumes are served through FlexVolume; without it they are not"),
        Key("disks", "disks", _disks, "mapping", "none",
             "which raw disks become volumes once that is approved; without it none do"),
        Key("nodeLabelsForPV", "node_labels_for_pv", values.label_keys, "list of label keys", "[]",
             "labels of the node that are copied to its volumes"),
        Key("labelsForPV", "labels_for_pv", values.labels, "mapping", "{}",
             "labels every volume gets"),
        Key("jobTolerations", "job_tolerations", list_of(scheduling.toleration),
             "list of Toleration", "[]", "tolerations of the pods of cleaning Jobs"),
        Key("jobResources", "job_resources", _job_resources, "ResourceRequirements",
             "requests cpu 10m and memory 64Mi, limits memory 256Mi",
             "what a cleaning Job asks for and may use; what is given replaces the whole default"),
        Key("useAlphaAPI", "use_alpha_api", boolean, "true or false", "false",
             "node affinity as the annotation of Kubernetes before 1.10"),
        Key("useJobForCleaning", "use_job_for_cleaning", boolean, "true or false", "false",
             "clean released volumes in Jobs, of the image that JOB_CONTAINER_IMAGE names"),
        Key("useNodeNameOnly", "use_node_name_only", boolean, "true or false", "false",
             "leave the node's UID out of the provisioner's name"),
        Key("setPVOwnerRef", "set_pv_owner_ref", boolean, "true or false", "false",
             "make the Node the owner of its volumes"),
        Key("removeNodeNotReadyTaint", "remove_node_not_ready_taint", boolean,
             "true or false", "false",
             "remove the taint of provisionerNotReadyNodeTaintKey once the node is served"),
        Key("provisionerNotReadyNodeTaintKey", "provisioner_not_ready_node_taint_key",
             values.taint_key, "taint key", '""', "the taint that removeNodeNotReadyTaint removes"),
        Key("minResyncPeriod", "min_resync_period_seconds", duration(1.0), "duration", "5m",
             "everything is looked at again after a random time of once to twice this long"),
    )  # fmt: skip


def check_together(
    values: dict[str, Any], files: Mapping[str, str], *, has_image: bool
) -> Iterator[Problem]:
    """What is wrong between top keys that are each valid; `files` maps lower-case keys to files.

    Also gives the filters of `disks` the classes that they name.
    """

    def problem(key: str, reason: str) -> Problem:
        return Problem(files[key.casefold()], key, reason)

    if values.get("use_job_for_cleaning") and not has_image:
        yield problem(
            "useJobForCleaning",
            "needs the environment variable JOB_CONTAINER_IMAGE, which is not set: "
            "it names the image that cleaning Jobs run",
        )
    if values.get("remove_node_not_ready_taint") and not values.get(
        "provisioner_not_ready_node_taint_key"
    ):
        yield problem(
            "removeNodeNotReadyTaint",
            "needs provisionerNotReadyNodeTaintKey, which is empty: it names the taint to remove",
        )
    pools: tuple[PoolConfig, ...] = values.get("pools", ())
    classes: Mapping[str, ClassConfig] = values.get("storage_classes", {})
    if pools:
        from localvolume.config import poolkeys

        for fault in poolkeys.faults(pools, classes):
            yield problem("pools", fault)
    if flex := values.get("flexvolume"):
        from localvolume.config import flexkeys

        for fault in flexkeys.faults(flex, classes, pools):
            yield problem("flexvolume", fault)
    if groups := [one.lvm.groups for one in (*pools, *([flex] if flex else ())) if one.lvm]:
        from localvolume.config.pools import faults_of_devices

        directories = [(one.name, one.host_dir, one.mount_dir) for one in classes.values()]
        for fault in faults_of_devices(groups, directories):
            yield problem("storageClassMap", fault)
    if unresolved := values.get("disks"):
        from localvolume.config import diskkeys

        values["disks"], faults = diskkeys.resolve(unresolved, classes)
        for key, fault in faults:
            yield Problem(files["disks"], key, fault)


def belongs_elsewhere(key: str) -> str:
    """A hint for a key of a class, a pool, flexvolume or disks that was given at the top."""
    from localvolume.config import diskkeys, flexkeys, poolkeys

    for table, where in (
        (class_keys(host_checks=False), "a class of storageClassMap"),
        (poolkeys.KEYS, "a pool of pools"),
        (flexkeys.KEYS, "flexvolume"),
        (diskkeys.KEYS, "disks"),
    ):
        for known in table:
            if known.name.casefold() == key.casefold():
                return f": {known.name} belongs inside {where}"
    return ""


def describe() -> list[KeyDoc]:
    """Every key with its type, default and meaning, for the documentation."""
    from localvolume.config import diskkeys, flexkeys, poolkeys

    return [
        KeyDoc(prefix + key.name, key.type, key.default, key.meaning)
        for prefix, table in (
            ("", top_keys(host_checks=False)),
            ("storageClassMap.<class>.", class_keys(host_checks=False)),
            ("pools.<pool>.", poolkeys.KEYS),
            ("pools.<pool>.inline.", poolkeys.INLINE_KEYS),
            ("flexvolume.", flexkeys.KEYS),
            ("disks.", diskkeys.KEYS),
            ("disks.filters[].", diskkeys.FILTER_KEYS),
            ("disks.filters[].match.", diskkeys.MATCH_KEYS),
        )
        for key in table
    ]
