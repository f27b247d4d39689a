"""An example of every key of the configuration, and what it needs around it to be valid."""

from __future__ import annotations

from collections.abc import Mapping

from docsite.markdown import Missing

CLASS = "storageClassMap.<class>."
POOL = "pools.<pool>."
INLINE = POOL + "inline."
FLEX = "flexvolume."
DISKS = "disks."
FILTER = "disks.filters[]."
MATCH = "disks.filters[].match."

_FAST = "{fast: {hostDir: /mnt/fast, mountDir: /mnt/fast}}"
_FILTERS = "[{name: ssds, class: fast, match: {minSize: 100Gi, rotational: false}}]"
_DIGEST = "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"

EXAMPLES: Mapping[str, str] = {
    "storageClassMap": _FAST,
    "pools": "{fast: {hostDir: /mnt/pool}}",
    "flexvolume": "{driver: lvm, volumeGroup: data}",
    "disks": f"{{filters: {_FILTERS}}}",
    "nodeLabelsForPV": "[topology.kubernetes.io/zone]",
    "labelsForPV": "{team: storage}",
    "jobTolerations": "[{key: dedicated, operator: Exists, effect: NoSchedule}]",
    "jobResources": "{requests: {cpu: 10m}, limits: {memory: 256Mi}}",
    "useAlphaAPI": "false",
    "useJobForCleaning": "true",
    "useNodeNameOnly": "true",
    "setPVOwnerRef": "true",
    "removeNodeNotReadyTaint": "true",
    "provisionerNotReadyNodeTaintKey": "example.com/volumes-not-ready",
    "minResyncPeriod": "5m0s",
    CLASS + "hostDir": "/mnt/fast",
    CLASS + "mountDir": "/mnt/fast",
    CLASS + "blockCleanerCommand": '[/scripts/shred.sh, "2"]',
    CLASS + "volumeMode": "Block",
    CLASS + "accessMode": "ReadWriteOncePod",
    CLASS + "fsType": "xfs",
    CLASS + "namePattern": '"ssd-*,nvme*"',
    CLASS + "selector": "[{matchExpressions: [{key: rack, operator: In, values: [r1]}]}]",
    CLASS + "firstUse": "trust",
    CLASS + "cleaningConcurrency": "2",
    CLASS + "cleaningTimeout": "12h",
    POOL + "hostDir": "/mnt/pool",
    POOL + "mountDir": "/pools/fast",
    POOL + "classes": "[local, local-retain]",
    POOL + "backend": "image",
    POOL + "enforce": "none",
    POOL + "image": "sparse",
    POOL + "reserve": "10Gi",
    POOL + "overbook": "1.5",
    POOL + "mustBeMounted": "false",
    POOL + "undoPeriod": "1h",
    POOL + "purgeFilesPerSecond": "5000",
    POOL + "inline": "{largest: 1Gi, total: 20Gi}",
    INLINE + "largest": "1Gi",
    INLINE + "total": "20Gi",
    POOL + "volumeGroup": "data",
    POOL + "volumeGroupPattern": '"disk-[0-9]+"',
    POOL + "volumeGroupTag": "localvolume.dev/pool",
    POOL + "thinPool": "thin",
    POOL + "stripes": "2",
    POOL + "stripeSize": "64Ki",
    POOL + "lvcreateOptions": "[--alloc, contiguous]",
    POOL + "lvmCommandPrefix": '[nsenter, -m, -u, -i, -n, -p, -t, "1"]',
    FLEX + "driver": "bindmount",
    FLEX + "volumeGroup": "data",
    FLEX + "thinPool": "thin",
    FLEX + "stripes": "2",
    FLEX + "stripeSize": "64Ki",
    FLEX + "lvcreateOptions": "[--alloc, contiguous]",
    FLEX + "lvmCommandPrefix": '[nsenter, -m, -u, -i, -n, -p, -t, "1"]',
    FLEX + "bindRoot": "/mnt/volumes",
    FLEX + "socket": "/run/localvolume/flexvolume.sock",
    FLEX + "socketOnHost": "/run/localvolume/flexvolume.sock",
    FLEX + "pluginDirectory": "/flexvolume-plugins",
    FLEX + "client": "/usr/local/bin/localvolume-flexvolume",
    FLEX + "names": "[localvolume.dev/flexvolume]",
    FLEX + "fsType": "xfs",
    FLEX + "defaultSize": "10Gi",
    FLEX + "gracePeriod": "1h",
    DISKS + "filters": _FILTERS,
    DISKS + "approved": f'["{_DIGEST}"]',
    FILTER + "name": "ssds",
    FILTER + "class": "fast",
    FILTER + "match": "{minSize: 100Gi, rotational: false}",
    FILTER + "fsType": "xfs",
    FILTER + "mkfsOptions": "-m 1",
    MATCH + "minSize": "100Gi",
    MATCH + "maxSize": "4Ti",
    MATCH + "model": '"*SSD*"',
    MATCH + "vendor": "ATA",
    MATCH + "rotational": "false",
    MATCH + "transport": "nvme",
    MATCH + "byId": '"nvme-*"',
    MATCH + "partitions": "true",
}

_AROUND: Mapping[str, Mapping[str, str]] = {
    CLASS: {"hostDir": "/mnt/fast", "mountDir": "/mnt/fast"},
    POOL: {"hostDir": "/mnt/pool"},
    INLINE: {"largest": "1Gi", "total": "20Gi"},
    FLEX: {"driver": "lvm", "volumeGroup": "data"},
    DISKS: {"filters": _FILTERS},
    FILTER: {"name": "ssds", "class": "fast", "match": "{minSize: 100Gi}"},
    MATCH: {"minSize": "100Gi"},
}
"""What stands beside an example, by what it is in."""

_WRAPPED: Mapping[str, Mapping[str, str]] = {
    CLASS: {"storageClassMap": "{fast: {*}}"},
    POOL: {"pools": "{fast: {*}}"},
    INLINE: {"pools": "{fast: {hostDir: /mnt/pool, inline: {*}}}"},
    FLEX: {"flexvolume": "{*}"},
    DISKS: {"storageClassMap": _FAST, "disks": "{*}"},
    FILTER: {"storageClassMap": _FAST, "disks": "{filters: [{*}]}"},
    MATCH: {
        "storageClassMap": _FAST,
        "disks": "{filters: [{name: ssds, class: fast, match: {*}}]}",
    },
}
"""The ConfigMap around all that, which is at the star."""

_LOGICAL: Mapping[str, str] = {"backend": "lvm", "volumeGroup": "data"}
_INSTEAD: Mapping[str, Mapping[str, str]] = {
    "disks": {"storageClassMap": _FAST},
    "removeNodeNotReadyTaint": {"provisionerNotReadyNodeTaintKey": "example.com/not-ready"},
    POOL + "image": {"hostDir": "/mnt/pool", "backend": "image"},
    POOL + "volumeGroup": _LOGICAL,
    POOL + "volumeGroupPattern": {"backend": "lvm"},
    POOL + "volumeGroupTag": {"backend": "lvm", "volumeGroupPattern": '"disk-[0-9]+"'},
    POOL + "thinPool": _LOGICAL,
    POOL + "stripes": _LOGICAL,
    POOL + "stripeSize": _LOGICAL,
    POOL + "lvcreateOptions": _LOGICAL,
    POOL + "lvmCommandPrefix": _LOGICAL,
    FLEX + "driver": {},
    FLEX + "bindRoot": {"driver": "bindmount"},
}
"""What stands around an example in place of the usual."""


def example(name: str) -> str:
    """The example of a key, as one line of YAML. Raises Missing."""
    if name not in EXAMPLES:
        raise Missing(f"docsite/examples.py, EXAMPLES: an example of {name} is missing")
    return f"{name.rpartition('.')[2]}: {EXAMPLES[name]}"


def configmap(name: str) -> dict[str, str]:
    """A whole ConfigMap that has the example: each key's text, by its name. Raises Missing."""
    prefix, _, key = name.rpartition(".")
    prefix = f"{prefix}." if prefix else ""
    if prefix and prefix not in _WRAPPED:
        raise Missing(f"docsite/examples.py, _AROUND and _WRAPPED: {prefix} is missing")
    values = {**_INSTEAD.get(name, _AROUND.get(prefix, {})), key: EXAMPLES[name]}
    if not prefix:
        return values
    within = ", ".join(f"{one}: {text}" for one, text in values.items())
    return {one: text.replace("{*}", f"{{{within}}}") for one, text in _WRAPPED[prefix].items()}
