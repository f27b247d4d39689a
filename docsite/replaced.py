"""The keys of the formats that are read for the tools that are replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from docsite.markdown import Missing, code, table, text, value
from localvolume.config.foreign import localpath, lvmd, openebs
from localvolume.config.syntax.keytable import Key

TITLES = ("key", "value", "default", "meaning", "example")

LVMD: Mapping[str, str] = {
    "socket-name": "socket-name: /run/topolvm/lvmd.sock",
    "lvm-command-prefix": 'lvm-command-prefix: [nsenter, -m, -u, -i, -n, -p, -t, "1"]',
    "device-classes": "device-classes: [{name: ssd, volume-group: data, default: true}]",
    "lvcreate-option-classes": "lvcreate-option-classes: [{name: near, options: [--alloc, cling]}]",
}
DEVICE_CLASS: Mapping[str, str] = {
    "name": "name: ssd",
    "volume-group": "volume-group: data",
    "default": "default: true",
    "spare-gb": "spare-gb: 10",
    "stripe": "stripe: 2",
    "stripe-size": 'stripe-size: "64"',
    "lvcreate-options": "lvcreate-options: [--alloc, contiguous]",
    "type": "type: thin",
    "thin-pool": "thin-pool: {name: pool0, overprovision-ratio: 2.0}",
}
THIN_POOL: Mapping[str, str] = {
    "name": "name: pool0",
    "overprovision-ratio": "overprovision-ratio: 2.0",
}
OPTION_CLASS: Mapping[str, str] = {
    "name": "name: near",
    "options": "options: [--alloc, cling]",
}
_LVMD: Sequence[tuple[str, Sequence[Key], Mapping[str, str]]] = (
    ("The file", lvmd._KEYS, LVMD),
    ("An entry of `device-classes`", lvmd._CLASS_KEYS, DEVICE_CLASS),
    ("The mapping `thin-pool`", lvmd._THIN_POOL_KEYS, THIN_POOL),
    ("An entry of `lvcreate-option-classes`", lvmd._OPTION_CLASS_KEYS, OPTION_CLASS),
)

LOCAL_PATH: Mapping[str, tuple[str, str, str]] = {
    "nodePathMap": (
        "required",
        (
            "which directories volumes are made in, by node; `DEFAULT_PATH_FOR_NON_LISTED_NODES` "
            "stands for all others"
        ),
        '"nodePathMap": [{"node": "worker-1", "paths": ["/data"]}]',
    ),
    "sharedFileSystemPath": (
        "none",
        "refused, unless it is empty: a filesystem that all nodes share is no local volume",
        '"sharedFileSystemPath": ""',
    ),
    "storageClassConfigs": (
        "none",
        "a `nodePathMap` for each StorageClass, in place of the one at the top",
        (
            '"storageClassConfigs": {"local-path": {"nodePathMap": [{"node": "worker-1", '
            '"paths": ["/data"]}]}}'
        ),
    ),
    "setupCommand": (
        "none",
        "refused, unless it is empty: nothing that a configuration brings is run as root",
        '"setupCommand": ""',
    ),
    "teardownCommand": ("none", "refused, unless it is empty", '"teardownCommand": ""'),
    "cmdTimeoutSeconds": (
        "none",
        "means nothing, and is warned of: there are no helper pods",
        '"cmdTimeoutSeconds": 120',
    ),
}
"""Default, meaning and example of the keys of config.json."""

OPENEBS: Mapping[str, tuple[str, str, str]] = {
    "StorageType": ("hostpath", "only `hostpath`", "{name: StorageType, value: hostpath}"),
    "BasePath": (
        openebs.DEFAULT_BASE_PATH + ", or the agent's first",
        "in which of the agent's base paths volumes are made",
        "{name: BasePath, value: /var/openebs/local}",
    ),
    "NodeAffinityLabels": (
        "kubernetes.io/hostname",
        "the node's labels that the PersistentVolume's affinity names",
        "{name: NodeAffinityLabels, list: [kubernetes.io/hostname]}",
    ),
    "XFSQuota": (
        "none",
        "the size is enforced with a project quota; the graces are per cent above it",
        '{name: XFSQuota, enabled: "true", data: {softLimitGrace: 10%, hardLimitGrace: 20%}}',
    ),
    "EXT4Quota": (
        "none",
        "the same: whichever the filesystem is, its own quota is used",
        '{name: EXT4Quota, enabled: "true", data: {hardLimitGrace: 20%}}',
    ),
    "FilePermissions": (
        'mode "0777", UID and GID "0"',
        "mode and owner of a new volume",
        '{name: FilePermissions, enabled: "true", data: {mode: "0750", UID: "1000", GID: "1000"}}',
    ),
}
"""Default, meaning and example of the entries of the annotation."""


def sections() -> list[str]:
    """The sections of the configuration page. Raises Missing."""
    parts = [
        (
            "## TopoLVM's lvmd.yaml\n\nRead with `--lvmd-config PATH`: each device class is a pool "
            "of logical volumes. [Pools](../pools.md#topolvms-lvmdyaml) says how StorageClasses "
            "name it."
        )
    ]
    for title, keys, examples in _LVMD:
        _complete(f"docsite/replaced.py, {title}", (key.name for key in keys), examples)
        rows = [
            (
                code(key.name),
                text(key.type),
                value(key.default),
                text(key.meaning),
                code(examples[key.name]),
            )
            for key in keys
        ]
        parts.append(f"### {title}\n\n{table(TITLES, rows)}")
    _complete("docsite/replaced.py, LOCAL_PATH", localpath.KEYS, LOCAL_PATH)
    parts.append(
        "## local-path's config.json\n\nRead with `--local-path-config PATH`. Its parameters are "
        "in [Parameters](parameters.md).\n\n" + _plain(LOCAL_PATH)
    )
    _complete("docsite/replaced.py, OPENEBS", openebs._NAMES, OPENEBS)
    parts.append(
        "## OpenEBS' annotation\n\n`--openebs-base-path` and `OPENEBS_IO_BASE_PATH` give the base "
        f"paths; a StorageClass says the rest in its annotation `{openebs.CONFIG_ANNOTATION}`, a "
        "list of:\n\n" + _plain(OPENEBS)
    )
    parts.append(
        "## kutti and elastic's local-volume\n\nBoth are configured by "
        "[environment variables](flags.md#environment-variables) alone."
    )
    return parts


def _plain(described: Mapping[str, tuple[str, str, str]]) -> str:
    rows = [
        (code(name), value(default), meaning, code(shown))
        for name, (default, meaning, shown) in described.items()
    ]
    return table(("key", "default", "meaning", "example"), rows)


def _complete(where: str, names: Iterable[str], described: Mapping[str, object]) -> None:
    if set(names) != described.keys():
        wrong = ", ".join(sorted(set(names) ^ described.keys()))
        raise Missing(f"{where}: missing here, or not in the code any more: {wrong}")
