"""`localvolume version`: the version of this command, and the images of agents and controllers.

The API tells which image each of our pods runs, by the name that its pod was given, and no more:
a tag is the word of whoever wrote it.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from msgspec.structs import force_setattr

from localvolume.cli.main import DISTRIBUTION
from localvolume.cli.output.exits import WELL, exit_statuses
from localvolume.cli.output.unreached import unreached
from localvolume.cli.rows import print_value, printable
from localvolume.cli.seeing.reading import ACCESS_FLAGS, access_of
from localvolume.config.flags.table import Flag, add_flags, output
from localvolume.kube.client import Client
from localvolume.kube.errors import AccessInvalid, ApiError
from localvolume.kube.kinds import Kind
from localvolume.kube.listing import listed
from localvolume.kube.objects import KubeObject, Trimmed


class _Container(Trimmed, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""


if TYPE_CHECKING:
    _Containers = tuple[_Container, ...]
else:
    _Containers = tuple[_Container, ...] | None


class _Spec(Trimmed, frozen=True, kw_only=True):
    containers: _Containers = ()

    def __post_init__(self) -> None:
        if not self.containers:
            force_setattr(self, "containers", ())


class _Status(Trimmed, frozen=True, kw_only=True):
    phase: str = ""


class ImagePod(KubeObject, frozen=True, kw_only=True):
    """A pod with the images of its containers."""

    spec: _Spec = _Spec()
    status: _Status = _Status()


_PODS = Kind("", "v1", "pods", "Pod", True, ImagePod)
_CONTAINERS = {"provisioner": "agents", "controller": "controllers"}
"""The names that the chart gives to our containers, with what runs in them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = exit_statuses("the versions are said")
    add_flags(
        parser,
        Flag("--client", "", "the version of this command only; no cluster is asked"),
        output("text", "json", "yaml"),
        *ACCESS_FLAGS,
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the versions. Returns the exit status: not 0 if the cluster could not be asked."""
    found: dict[str, Any] = {"client": {"version": metadata.version(DISTRIBUTION)}}
    failed: AccessInvalid | ApiError | None = None
    if not arguments.client:
        try:
            found |= images(asyncio.run(_pods(arguments)))
        except (AccessInvalid, ApiError) as error:
            failed = error
            found |= dict.fromkeys(_CONTAINERS.values())
    if arguments.output == "text":
        _print(found)
    else:
        print_value(found, arguments.output)
    return unreached("version", failed) if failed else WELL


async def _pods(arguments: argparse.Namespace) -> list[ImagePod]:
    """Our pods. Raises AccessInvalid and ApiError."""
    async with Client(access_of(arguments), user_agent="localvolume-version") as client:
        where, selector = arguments.release_namespace, arguments.selector
        return await listed(client, _PODS, where, label_selector=selector)


def images(pods: Sequence[ImagePod]) -> dict[str, list[dict[str, Any]]]:
    """How many agents and controllers have which image; pods that ended are none."""
    counted: dict[str, Counter[str]] = {what: Counter() for what in _CONTAINERS.values()}
    for pod in pods:
        if pod.status.phase in ("Succeeded", "Failed"):
            continue
        for container in pod.spec.containers:
            if what := _CONTAINERS.get(container.name):
                counted[what][container.image] += 1
    return {
        what: [{"image": image, "pods": count} for image, count in sorted(images.items())]
        for what, images in counted.items()
    }


def _print(found: dict[str, Any]) -> None:
    print(f"{'client':<12}{found['client']['version']}")
    for what in _CONTAINERS.values():
        if what not in found:
            continue
        if found[what] is None:
            print(f"{what:<12}unknown")
        elif not found[what]:
            print(f"{what:<12}none found")
        for one in found[what] or ():
            print(f"{what:<12}{one['pods']} of {printable(one['image'])}")
