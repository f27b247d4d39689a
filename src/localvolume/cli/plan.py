"""`localvolume plan`: what the agent would do on this host, and why, changing nothing."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from localvolume.config.loading import load
from localvolume.config.model import Configuration, ConfigurationInvalid
from localvolume.host.workers import Workers
from localvolume.kube.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.errors import AccessInvalid, ApiError, NotThere
from localvolume.kube.kinds import NODES, PERSISTENT_VOLUMES, STORAGE_CLASSES, Kind, T
from localvolume.kube.objects import PersistentVolume
from localvolume.static.facts import Changes, Survey
from localvolume.static.model import Ask, Facts, Hold, Keep, Publish, Step
from localvolume.static.offer import offer
from localvolume.static.plan import plan
from localvolume.static.surroundings import Surroundings, node_facts, surroundings
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.objects import path_of

VERDICTS = {
    "Publish": "publish",
    "CleanFirst": "clean first",
    "Ask": "ask",
    "Adopt": "adopt",
    "MarkClaimed": "mark",
    "Withdraw": "withdraw",
    "Reclaim": "delete, then clean",
    "Clean": "clean",
    "LetGo": "let go",
    "Hold": "hold",
    "Keep": "keep",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="DIR",
        default="/etc/provisioner/config",
        help="the configuration (default /etc/provisioner/config)",
    )
    parser.add_argument(
        "--node", metavar="NAME", help="this node's name (default: MY_NODE_NAME, or the hostname)"
    )
    parser.add_argument(
        "--offline",
        action="store_true",
        help="ask no cluster: no PersistentVolume exists, every class has reclaim policy Delete",
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="how to reach the cluster")
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")


def run(arguments: argparse.Namespace) -> int:
    node = arguments.node or os.environ.get("MY_NODE_NAME") or os.uname().nodename
    try:
        configuration = load(arguments.config)
    except ConfigurationInvalid as invalid:
        for problem in invalid.problems:
            print(problem, file=sys.stderr)
        return 1
    try:
        rows = asyncio.run(_rows(configuration, node, arguments))
    except (AccessInvalid, ApiError, _Unknown) as error:
        print(f"localvolume plan: {error}", file=sys.stderr)
        return 1
    _PRINTERS[arguments.output](rows)
    return 0


class _Unknown(Exception):
    """The cluster does not know what a plan needs to know."""


async def _rows(
    configuration: Configuration, node_name: str, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    if arguments.offline:
        node = NodeFacts(node_name, "", node_name, {marks.HOSTNAME_LABEL: node_name})
        facts = await _look(surroundings(configuration, node, None), {})
        return _described(dataclasses.replace(facts, online=False))
    access = find_access(arguments.kubeconfig)
    async with Client(access, user_agent="localvolume-plan") as client:
        return await _online(client, configuration, node_name)


async def _online(
    client: Client, configuration: Configuration, node_name: str
) -> list[dict[str, Any]]:
    try:
        node = node_facts(node_name, await client.get(NODES, node_name))
    except NotThere:
        node = node_facts(node_name, None)
    if isinstance(node, str):
        raise _Unknown(node)
    own = f"{marks.NODE_LABEL}={marks.node_key(node_name)}"
    volumes = await _all(client, PERSISTENT_VOLUMES, own)
    classes = await _all(client, STORAGE_CLASSES)
    facts = await _look(surroundings(configuration, node, classes), volumes)
    # What lies outside our label is asked for by name, as the agent would.
    while questions := [step for step in plan(facts) if isinstance(step, Ask | Publish)]:
        names = {step.name for step in questions} - facts.asked.keys()
        if not names:
            break
        answers = {name: await _maybe(client, name) for name in names}
        facts = dataclasses.replace(facts, asked={**facts.asked, **answers})
    return _described(facts)


async def _maybe(client: Client, name: str) -> PersistentVolume | None:
    try:
        return await client.get(PERSISTENT_VOLUMES, name)
    except NotThere:
        return None


async def _all(client: Client, kind: Kind[T], label_selector: str = "") -> dict[str, T]:
    found: dict[str, T] = {}
    cont = ""
    while True:
        page = await client.list_page(kind, label_selector=label_selector, cont=cont)
        found.update((item.metadata.name, item) for item in page.items)
        cont = page.cont
        if not cont:
            return found


async def _look(around: Surroundings, volumes: Mapping[str, PersistentVolume]) -> Facts:
    workers = Workers()
    try:
        found = await Survey(workers).look(
            {name: facts.config for name, facts in around.classes.items()},
            {path_of(volume) for volume in volumes.values()},
            Changes(),
        )
    finally:
        workers.close()
    classes = {
        name: dataclasses.replace(facts, problem=found.problems.get(name))
        for name, facts in around.classes.items()
    }
    return Facts(around.node, around.options, classes, found.entries, volumes)


def _described(facts: Facts) -> list[dict[str, Any]]:
    """One row per step, and one per class that cannot be listed."""
    rows = [
        {"class": name, "path": class_facts.config.host_dir, "verdict": "hold"}
        | {"reason": class_facts.problem}
        for name, class_facts in facts.classes.items()
        if class_facts.problem
    ]
    return rows + [_row(step, facts) for step in plan(facts)]


def _row(step: Step, facts: Facts) -> dict[str, Any]:
    volume = getattr(step, "volume", None)
    entry = getattr(step, "entry", None)
    row: dict[str, Any] = {
        "class": volume.spec.storage_class_name if volume else entry.class_name if entry else "",
        "path": step.key,
        "verdict": VERDICTS[type(step).__name__],
        "reason": step.reason,
    }
    if isinstance(step, Hold):
        row["code"] = step.code
    if isinstance(step, Keep) and entry is not None and entry.excluded:
        row["verdict"] = "skip"
    name = getattr(step, "name", "") or (volume.metadata.name if volume else "")
    if name:
        row["persistentVolume"] = name
    if entry is not None and entry.kind != "none":
        row |= {"kind": entry.kind, "bytes": entry.size_bytes, "identity": dict(entry.identity)}
    if isinstance(step, Publish):
        class_facts = facts.classes[step.entry.class_name]
        row["manifest"] = offer(step.name, step.entry, class_facts, facts.node, facts.options)
    return row


def _printable(text: str) -> str:
    """A path may hold any bytes, and a name with a newline must not look like two rows."""
    plain = text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in plain)


def _print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        print("no entries: the discovery directories are empty")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("CLASS", "PATH", "VERDICT", "PV", "CAPACITY", "MODE", "REASON"):
        table.add_column(title, overflow="fold")
    for row in rows:
        spec = row.get("manifest", {}).get("spec", {})
        cells = (
            row["class"],
            row["path"],
            row["verdict"],
            row.get("persistentVolume", ""),
            spec.get("capacity", {}).get("storage", ""),
            spec.get("volumeMode", ""),
            row["reason"],
        )
        table.add_row(*(Text(_printable(cell)) for cell in cells))
    console = Console()
    # Whoever pipes it into another program wants one line per row.
    Console(width=None if console.is_terminal else 400).print(table)


def _print_json(rows: Sequence[Mapping[str, Any]]) -> None:
    print(json.dumps(rows, indent=2))


def _print_yaml(rows: Sequence[Mapping[str, Any]]) -> None:
    print(yaml.safe_dump(list(rows), sort_keys=False, allow_unicode=True), end="")


_PRINTERS = {"table": _print_table, "json": _print_json, "yaml": _print_yaml}
