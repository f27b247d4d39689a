"""`localvolume support-bundle`: what is needed to look into a problem in one file, no secrets."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import time
from importlib import metadata
from typing import Any, Final

from localvolume.cli.output.exits import exit_statuses
from localvolume.cli.output.refusal import say
from localvolume.cli.output.unreached import unreached
from localvolume.cli.ownpod import own_namespace, own_node
from localvolume.cli.seeing.bundle.archive import Archive
from localvolume.cli.seeing.bundle.collecting import LOG_BYTES, Reader
from localvolume.cli.seeing.bundle.hostfacts import Host, Volumes
from localvolume.cli.seeing.bundle.redact import Redactor
from localvolume.cli.seeing.bundle.trimming import trimmed
from localvolume.cli.seeing.reading import ACCESS_FLAGS, access_of, read
from localvolume.cli.seeing.status.overview import overview
from localvolume.config.flags.agent import CONFIG_DIRECTORY
from localvolume.config.flags.table import Flag, add_flags
from localvolume.config.syntax.durations import parse_duration
from localvolume.kube.client import Client
from localvolume.kube.errors import AccessInvalid, ApiError

LEFT_OUT: Final = (
    "Secrets and service account tokens: never asked for",
    "kubeconfigs and what we identify ourselves with: never written",
    "values of environment variables of containers, but for those that localvolume reads",
    "values of annotations, but for those about volumes; managedFields",
    "fields of Nodes but labels, taints, conditions, capacity and versions",
    "PersistentVolumes, claims and StorageClasses that are none of ours; pods of others",
    "what is for another CSI driver; VolumeSnapshots and VolumeGroupSnapshots",
    "in every text: bearer tokens, JSON web tokens, private keys, and passwords in URLs",
    "in every text: the values of what is called a password, secret, token, key or credential",
    "what is in the volumes",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Look into it before you hand it on: manifest.json says what was left out, and what could "
        "not be read. Run on a node, it has that node's mounts, disks and plan as well. "
        + exit_statuses("written", "not written")
    )
    add_flags(
        parser,
        Flag("-o --output", "FILE", "a new file; default: localvolume-support-<time>.tar.gz here"),
        Flag("--logs-since", "DURATION", "how far back the logs of our pods go", parse_duration,
             "24h"),
        Flag("--node", "NAME", "logs of the pods of this node only", default=""),
        Flag("--config", "DIR", "the agent's configuration on this host, for its plan",
             default=CONFIG_DIRECTORY),
        *ACCESS_FLAGS,
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path: str = arguments.output or f"localvolume-support-{stamp}.tar.gz"
    try:
        with Archive(path, f"localvolume-support-{stamp}") as archive:
            # A host that has an agent's configuration is a node.
            unread = asyncio.run(_fill(archive, arguments, os.path.isdir(arguments.config)))
            archive.publish()
    except (AccessInvalid, ApiError) as error:
        return unreached("support-bundle", error)
    except OSError as error:
        say("support-bundle", f"not written: {error}")
        return 1
    for what, why in unread.items():
        say("support-bundle", f"not in it: {what}: {why}")
    print(f"{path}: {len(archive.files)} files; look into it before you hand it on")
    return 0


async def _fill(archive: Archive, arguments: argparse.Namespace, on_node: bool) -> dict[str, str]:
    """Adds everything, the manifest last. Returns what could not be read."""
    async with Client(access_of(arguments), user_agent="localvolume-support-bundle") as client:
        facts = await read(client, arguments.selector, arguments.release_namespace)
        redactor = Redactor(await client.access.token())
        reader = Reader(client, facts)
        now = facts.now

        def add(name: str, value: Any) -> None:
            archive.add_json(name, redactor.value(value), mtime=now)

        add("status.json", overview(facts))
        add("versions.json", {**_versions(), "kubernetes": await reader.version()})
        pods: list[dict[str, Any]] = []
        async for plural, items in reader.objects():
            if plural == "pods":
                pods = items
            add(f"objects/{plural}.json", [trimmed(plural, one) for one in items])
        since = max(1, round(arguments.logs_since))
        async for name, text in reader.logs(pods, since, arguments.node):
            archive.add(f"logs/{name}.log", redactor.text(text), mtime=now)
        if on_node:
            volumes = facts.volumes
            await _add_host(add, archive, client, redactor, reader, arguments, volumes, now)
        else:
            why = f"not on a node: there is no configuration at {arguments.config}"
            reader.unread["host"] = why
        manifest = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
            "leftOut": LEFT_OUT,
            "takenOut": redactor.count,
            "unknown": {what: redactor.text(why) for what, why in reader.unread.items()},
            "limits": {"logBytesPerContainer": LOG_BYTES, "logsSinceSeconds": since},
            "files": archive.files,
        }
        archive.add_json("manifest.json", manifest, mtime=now)
        return reader.unread


async def _add_host(
    add: Any,
    archive: Archive,
    client: Client,
    redactor: Redactor,
    reader: Reader,
    arguments: argparse.Namespace,
    volumes: Volumes,
    now: float,
) -> None:
    """Adds the facts about this host, which is one of our nodes."""
    host = Host(reader.unread.__setitem__)
    archive.add("host/mountinfo", redactor.text(host.mounts()), mtime=now)
    add("host/disks.json", host.disks())
    node = arguments.node or own_node()
    rows = await host.plan(client, arguments.config, node, own_namespace(), volumes)
    add("host/plan.json", rows)


def _versions() -> dict[str, Any]:
    try:
        own = metadata.version("local-volume-provisioner")
    except metadata.PackageNotFoundError:
        own = "not installed as a package"
    return {"localvolume": own, "python": platform.python_version(), "kernel": platform.release()}
