"""Every key of the configuration: its type, default and meaning, and how its value is read."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from yaml.nodes import Node

from localvolume.config import names, scheduling, values
from localvolume.config.cleaners import FSCLEAN, cleaner_command
from localvolume.config.directories import Claim, check_overlaps, directory
from localvolume.config.model import ClassConfig
from localvolume.config.readers import (
    Place,
    boolean,
    duration,
    entries,
    keys,
    list_of,
    one_of,
    quoted,
    whole_number,
)

Reader = Callable[[Node, Place], Any]

_MOST_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class KeyDoc:
    """One key for the documentation. Class keys are named `storageClassMap.<class>.<key>`."""

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True, slots=True)
class _Key:
    """A key as upstream spells it, the model's field it fills, and what is said about it."""

    name: str
    field: str
    read: Reader
    type: str
    default: str
    meaning: str


def class_keys(*, host_checks: bool) -> tuple[_Key, ...]:
    """The keys of one class."""

    def cleaner(node: Node, place: Place) -> tuple[str, ...] | None:
        return cleaner_command(node, place, host_checks=host_checks)

    return (
        _Key("hostDir", "host_dir", directory, "absolute path", "required",
             "the discovery directory on the host; each entry of it is a volume"),
        _Key("mountDir", "mount_dir", directory, "absolute path", "required",
             "where the agent sees hostDir"),
        _Key("blockCleanerCommand", "block_cleaner_command", cleaner, "list of words",
             "zeros for volumeMode Block, signatures removed for Filesystem",
             "how a released block device is cleaned"),
        _Key("volumeMode", "volume_mode", values.volume_mode, "Filesystem or Block", "Filesystem",
             "how volumes are offered"),
        _Key("accessMode", "access_mode",
             one_of("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"),
             "an access mode", "ReadWriteOnce", "the one access mode of every volume"),
        _Key("fsType", "fs_type", values.fs_type, "word", "the kubelet's",
             "the filesystem made on a block device that is offered as Filesystem"),
        _Key("namePattern", "name_pattern", values.name_pattern, "comma separated patterns", "*",
             "which entries are meant"),
        _Key("selector", "selector", scheduling.selector_terms, "list of NodeSelectorTerm", "[]",
             "further nodes that reach the same volume, for shared disks"),
        _Key("firstUse", "first_use", one_of("require-empty", "trust", "clean"),
             "require-empty, trust or clean", "require-empty",
             "what to do with a volume found with something on it: leave it, offer it, clean it"),
        _Key("cleaningConcurrency", "cleaning_concurrency", whole_number(1, _MOST_AT_ONCE),
             "whole number", "1", "how many volumes of one device are cleaned at the same time"),
        _Key("cleaningTimeout", "cleaning_timeout_seconds", duration(1.0), "duration", "none",
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


def _class(node: Node, place: Place, table: Iterable[_Key]) -> "Read":
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


def _claim(name: str, read: "Read", place: Place) -> Claim:
    pattern = read.values.get("name_pattern", None if "name_pattern" in read.given else "*")
    return Claim(name, read.values.get("host_dir"), read.values.get("mount_dir"), pattern, place)


@dataclass(frozen=True, slots=True)
class Read:
    """What a mapping gave: good values by the model's field; the fields given, good or bad."""

    values: Mapping[str, Any]
    given: frozenset[str]


def read_keys(
    node: Node,
    place: Place,
    table: Iterable[_Key],
    elsewhere: Callable[[str], str] = lambda _: "",
) -> Read:
    """Read a mapping of fixed keys, noting every problem at its place."""
    by_name = {key.name: key for key in table}
    found = keys(node, place, by_name, elsewhere)
    good: dict[str, Any] = {}
    for name, (value, where) in found.items():
        result = by_name[name].read(value, where)
        if result is not None:
            good[by_name[name].field] = result
    return Read(good, frozenset(by_name[name].field for name in found))


def top_keys(*, host_checks: bool) -> tuple[_Key, ...]:
    """The keys of the ConfigMap, each a file in the directory."""
    return (
        _Key("storageClassMap", "storage_classes", storage_classes(host_checks=host_checks),
             "mapping", "{}", "the classes, by the name of their StorageClass"),
        _Key("nodeLabelsForPV", "node_labels_for_pv", values.label_keys, "list of label keys", "[]",
             "labels of the node that are copied to its volumes"),
        _Key("labelsForPV", "labels_for_pv", values.labels, "mapping", "{}",
             "labels every volume gets"),
        _Key("jobTolerations", "job_tolerations", list_of(scheduling.toleration),
             "list of Toleration", "[]", "tolerations of cleaning Jobs; unused without Jobs"),
        _Key("useAlphaAPI", "use_alpha_api", boolean, "true or false", "false",
             "node affinity as the annotation of Kubernetes before 1.10"),
        _Key("useJobForCleaning", "use_job_for_cleaning", values.not_yet("cleaning by Jobs"),
             "true or false", "false", "clean block devices in Jobs; not in this release"),
        _Key("useNodeNameOnly", "use_node_name_only", boolean, "true or false", "false",
             "leave the node's UID out of the provisioner's name"),
        _Key("setPVOwnerRef", "set_pv_owner_ref", boolean, "true or false", "false",
             "make the Node the owner of its volumes"),
        _Key("removeNodeNotReadyTaint", "remove_node_not_ready_taint",
             values.not_yet("removing the node's not-ready taint"),
             "true or false", "false", "remove a taint when ready; not in this release"),
        _Key("provisionerNotReadyNodeTaintKey", "provisioner_not_ready_node_taint_key",
             values.taint_key, "taint key", '""', "the taint that removeNodeNotReadyTaint removes"),
        _Key("minResyncPeriod", "min_resync_period_seconds", duration(1.0), "duration", "5m",
             "everything is looked at again after a random time of once to twice this long"),
    )  # fmt: skip


def belongs_elsewhere(key: str) -> str:
    """A hint for a class key that was given at the top."""
    for known in class_keys(host_checks=False):
        if known.name.casefold() == key.casefold():
            return f": {known.name} belongs inside a class of storageClassMap"
    return ""


def describe() -> list[KeyDoc]:
    """Every key with its type, default and meaning, for the documentation."""
    return [
        KeyDoc(prefix + key.name, key.type, key.default, key.meaning)
        for prefix, table in (
            ("", top_keys(host_checks=False)),
            ("storageClassMap.<class>.", class_keys(host_checks=False)),
        )
        for key in table
    ]
