"""The page of what a StorageClass may say: its parameters, by whose provisioner it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from docsite.markdown import Missing, code, page, table
from localvolume.config.flags.agent import LOCAL_PATH_PROVISIONER
from localvolume.config.foreign import kutti, openebs
from localvolume.config.pools import Flavor
from localvolume.config.provisioner import CSI_DRIVER, DYNAMIC_PROVISIONER
from localvolume.dynamic.classes.parameters import READERS
from localvolume.flexvolume.plan import provision as flexvolume
from localvolume.volumes.marks import FLEX_DRIVER


class Parameter(NamedTuple):
    """`default` and `meaning` are Markdown, `example` is a value."""

    default: str
    meaning: str
    example: str


_OURS = {
    "enforce": Parameter(
        "as the pool says", "`quota` or `none`: whether the size is enforced", "quota"
    ),
    "onRemoval": Parameter(
        "`delete`", "`overwrite`: contents are overwritten before they are deleted", "overwrite"
    ),
    "undoPeriod": Parameter(
        "the pool's", "how long the volume is kept after its claim is gone", "1h"
    ),
}
_AFFINITY = Parameter(
    "`kubernetes.io/hostname`",
    "the node's label that the PersistentVolume's affinity names",
    "kubernetes.io/hostname",
)
_MODE = Parameter("`0777`", "permission bits of a new volume; a template", "0750")
_UID = Parameter("`0`", "the owner of a new volume; a template", "1000")
_GID = Parameter("`0`", "its group; a template", "1000")
_FS_TYPE = Parameter("`ext4`", "`ext4` or `xfs`; for pools with backend `image` and `lvm`", "xfs")
_PATTERN = "{{ .PVC.Namespace }}/{{ .PVC.Name }}"

PARAMETERS: Mapping[Flavor, Mapping[str, Parameter]] = {
    "native": {
        "pool": Parameter(
            "all pools that serve the class",
            "names of pools, separated by commas; a pool with a pattern stands for all its groups",
            "fast,cheap",
        ),
        "enforce": _OURS["enforce"],
        "fsType": _FS_TYPE,
        "csi.storage.k8s.io/fstype": Parameter("`ext4`", "the same, as CSI drivers say it", "xfs"),
        "mode": _MODE,
        "uid": _UID,
        "gid": _GID,
        "pathPattern": Parameter(
            "the PersistentVolume's name",
            f"where the volume lies below the pool; a template that begins with `{_PATTERN}`",
            _PATTERN,
        ),
        "nodeAffinityKey": _AFFINITY,
        "onRemoval": Parameter(
            "`delete`",
            "`overwrite`: contents are overwritten before they are deleted (not on btrfs); "
            "`discard`: the blocks are discarded (only with `lvm`)",
            "overwrite",
        ),
        "undoPeriod": _OURS["undoPeriod"],
        "fullCopies": Parameter(
            "`refused`",
            "`allowed`: where blocks cannot be shared, a volume with the content of another is "
            "made by [copying all of it](../snapshots.md#full-copies); only with "
            f"`{CSI_DRIVER}`",
            "allowed",
        ),
        "topolvm.io/device-class": Parameter(
            'the same as `""`, and all pools that are not device classes',
            'the pool of logical volumes with that name; `""`: the default device class',
            "ssd",
        ),
        "topolvm.io/lvcreate-option-class": Parameter(
            "none", "the option class of `lvmd.yaml` with which volumes are made", "near"
        ),
    },
    "local-path": {
        "nodePath": Parameter(
            "any of the node's", "the path of the node in which volumes are made", "/data"
        ),
        "pathPattern": Parameter(
            "`<PV>_<namespace>_<claim>`",
            f"where the volume lies below the path; a template that begins with `{_PATTERN}`",
            _PATTERN,
        ),
        "allowUnsafePathPattern": Parameter(
            "`false`",
            "`true`: `pathPattern` may begin otherwise; two claims may then have one directory. "
            "Also an annotation of the class",
            "true",
        ),
        "nodeAffinityKey": _AFFINITY,
        "userPattern": _UID._replace(meaning=f"{_UID.meaning}. Also an annotation of the class"),
        "groupPattern": _GID._replace(meaning=f"{_GID.meaning}. Also an annotation of the class"),
        "permPattern": _MODE._replace(meaning=f"{_MODE.meaning}. Also an annotation of the class"),
        "enforce": _OURS["enforce"]._replace(default="`none`"),
        "onRemoval": _OURS["onRemoval"],
        "undoPeriod": _OURS["undoPeriod"]._replace(default="`0s`"),
    },
    "openebs": {
        "onRemoval": _OURS["onRemoval"],
        "undoPeriod": _OURS["undoPeriod"]._replace(default="`0s`"),
    },
    "kutti": {},
}
FLEXVOLUME: Mapping[str, Parameter] = {
    "fsType": Parameter("the agent's `fsType`", "`ext4` or `xfs`", "xfs"),
    "csi.storage.k8s.io/fstype": Parameter(
        "the agent's `fsType`", "the same, as CSI drivers say it", "xfs"
    ),
    "mkfsOptions": Parameter(
        "none",
        "options of mkfs that change the layout; needs `fsType`. No files, no devices",
        "-m reflink=1",
    ),
    "onRemoval": Parameter(
        "`delete`",
        "`overwrite`: zeros are written over it before it is removed; `discard`: its blocks are "
        "discarded",
        "overwrite",
    ),
}

_INTRODUCTION = """\
An unknown parameter is refused, and an Event on the claim says so. Of the class's own fields,
`reclaimPolicy`, `mountOptions`, `allowedTopologies`, `volumeBindingMode` and
`allowVolumeExpansion` are used. In the tests, the code itself reads every example.

A class of static volumes (`provisioner: kubernetes.io/no-provisioner`) has no parameters. The
settings for its volumes are in [storageClassMap](configuration.md#a-class-of-storageclassmap).

A **template** may contain `{{ .PVName }}`, `{{ .PVC.Name }}`, `{{ .PVC.Namespace }}`,
`{{ .PVC.UID }}`, `{{ .PVC.Labels.x }}` or `{{ index .PVC.Labels "x" }}`, and the same for
`.PVC.Annotations`. If the claim lacks what a template names, that is an error.
"""
_TITLES: Mapping[Flavor, tuple[str, str]] = {
    "native": (
        f"Provisioner `{DYNAMIC_PROVISIONER}`",
        f"Also `{CSI_DRIVER}`, [whose volumes the agent mounts](../csi.md).",
    ),
    "local-path": (
        f"Provisioner `{LOCAL_PATH_PROVISIONER}`",
        (
            "The parameters of local-path, and three of ours. The class's annotation "
            "`defaultVolumeType`, and the claim's `volumeType`, say `hostPath` (the default) or "
            "`local`."
        ),
    ),
    "openebs": (
        f"Provisioner `{openebs.PROVISIONER}`",
        (
            "OpenEBS has the rest in the annotation "
            f"[`{openebs.CONFIG_ANNOTATION}`](configuration.md#openebs-annotation)."
        ),
    ),
    "kutti": (f"Provisioner `{kutti.PROVISIONER}`", "Its classes take no parameters."),
}


def render() -> str:
    """docs/reference/parameters.md. Raises Missing."""
    parts = []
    for flavor, (title, words) in _TITLES.items():
        parts.append(_section(title, words, PARAMETERS[flavor], READERS[flavor], flavor))
    words = "Also `volumes.k8s.elastic.co/elastic-local`."
    checks = flexvolume._CHECKS
    parts.append(_section(f"Provisioner `{FLEX_DRIVER}`", words, FLEXVOLUME, checks, "FlexVolume"))
    return page("Parameters of a StorageClass", _INTRODUCTION, *parts)


def _section(
    title: str,
    words: str,
    described: Mapping[str, Parameter],
    known: Mapping[str, object],
    whose: str,
) -> str:
    if described.keys() != known.keys():
        wrong = ", ".join(sorted(described.keys() ^ known.keys()))
        raise Missing(f"docsite/parameters.py, {whose}: missing, or not in the code: {wrong}")
    parts = [f"## {title}", words]
    if described:
        rows = [
            (code(name), one.default, one.meaning, f'`{name}: "{one.example}"`')
            for name, one in described.items()
        ]
        parts.append(table(("parameter", "default", "meaning", "example"), rows))
    return "\n\n".join(part for part in parts if part)
