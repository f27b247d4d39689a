"""The page of the ConfigMap's keys, of which config.schema has the table."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from docsite import replaced
from docsite.examples import example
from docsite.markdown import code, page, table, text, value
from localvolume.config import schema

_TITLES: Mapping[str, tuple[str, str]] = {
    "": (
        "The keys of the ConfigMap",
        (
            "Each key is a file in the directory of `--config`. Keys are those of upstream's "
            "static provisioner; `pools`, `flexvolume`, `disks` and `jobResources` are ours. You "
            "may write a key in any case, as with upstream."
        ),
    ),
    "storageClassMap.<class>.": (
        "A class of storageClassMap",
        "One entry for each StorageClass. Durations are Go's, like `1h30m`.",
    ),
    "pools.<pool>.": (
        "A pool of pools",
        (
            "One entry for each place in which volumes are made; its name is a DNS label. "
            "[Pools](../pools.md) explains what they do and how reliable their limits are."
        ),
    ),
    "pools.<pool>.inline.": (
        "The mapping inline of a pool",
        (
            "How much pods may take by [volumes in their own "
            "specs](../csi.md#volumes-in-a-pods-own-spec), which need `--csi`."
        ),
    ),
    "flexvolume.": (
        "The key flexvolume",
        "The settings of a node that serves FlexVolume: [FlexVolume](../flexvolume.md).",
    ),
    "disks.": (
        "The key disks",
        "Which raw disks may be formatted, and which plans are approved: [disks](../disks.md).",
    ),
    "disks.filters[].": ("A filter of disks", ""),
    "disks.filters[].match.": (
        "The mapping match of a filter",
        "Everything given must hold. Patterns are those of `namePattern`.",
    ),
}

_INTRODUCTION = """\
This page lists everything that a configuration may contain, with defaults, and with examples that
the tests give to the code's own validation. Anything not listed here is refused by name:
`localvolume check-config DIR` says what is wrong in a directory before you apply it. An edit of the
ConfigMap takes effect at once. An invalid edit is reported, and the last valid one stays in
force.
"""


def render() -> str:
    """docs/reference/configuration.md. Raises Missing."""
    documented = schema.describe()
    parts = []
    for prefix, keys in itertools.groupby(documented, lambda one: _prefix(one.name)):
        title, words = _TITLES.get(prefix, (f"The keys {code(prefix + '…')}", ""))
        rows = [
            (
                code(key.name.removeprefix(prefix)),
                text(key.type),
                value(key.default),
                text(key.meaning),
                code(example(key.name)),
            )
            for key in keys
        ]
        titles = ("key", "value", "default", "meaning", "example")
        parts.append(f"## {title}\n\n{words}\n\n{table(titles, rows)}")
    return page("Configuration", _INTRODUCTION, *parts, *replaced.sections())


def _prefix(name: str) -> str:
    return name[: name.rfind(".") + 1]
