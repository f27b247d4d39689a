"""Every reason of an Event that the code can write, found in the code itself."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

from docsite.source import SOURCE
from localvolume.csi.wire import messages

SILENT = frozenset(
    {
        "backends",
        "cleaning",
        "cli",
        "config",
        "host",
        "kube",
        "process",
        "volumes",
    }
)
"""The packages that write no Events."""

NOT_REASONS = frozenset(
    {
        "BadCall",
        "BoolValue",
        "CSIDriver",
        "CSIPlugin",
        "CSIStorageCapacity",
        "ConfigMap",
        "DaemonSet",
        "DeviceGone",
        "FileSystemResizePending",
        "IOErrors",
        "InProgress",
        "MemoryPressure",
        "NodeReady",
        "NotFound",
        "PVName",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "PoolDegraded",
        "PoolFilling",
        "PoolFull",
        "PoolUnreachable",
        "ReadOnly",
        "ReadWriteOnce",
        "ReadWriteOncePod",
        "ReplicaSet",
        "StorageClass",
        "VolumeGroupSnapshotClass",
        "VolumeGroupSnapshotContent",
        "VolumeSnapshot",
        "VolumeSnapshotClass",
        "VolumeSnapshotContent",
    }
)
"""Written like a reason, and none: kinds, access modes, what is found inside messages."""

_COMPOUND = re.compile(r"(?:[A-Z]{2,}(?=[A-Z][a-z])|[A-Z][a-z]+)(?:[A-Z][a-z]+)+")
_TYPES = ("Normal", "Warning")


def found() -> set[str]:
    """The reasons. A text that looks like one counts as one, unless NOT_REASONS says otherwise.

    One that is put together has `*` for each part that is put in.
    """
    reasons = set()
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] not in SILENT:
            reasons |= set(_of(ast.parse(path.read_text())))
    return reasons - NOT_REASONS - _calls()


def _calls() -> set[str]:
    """The names of the calls of CSI and the kubelet's registration."""
    return {rpc for rpcs in messages.SERVICES.values() for rpc in rpcs}


def _of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for before, after in itertools.pairwise(node.args):
                if isinstance(before, ast.Constant) and before.value in _TYPES:
                    yield from _spelled(after)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and _COMPOUND.fullmatch(node.value)
        ):
            yield node.value


def _spelled(node: ast.expr) -> Iterator[str]:
    """What stands where a reason stands: the text, or its pattern; nothing of a name."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "*" for one in parts)
