"""What a cleaning Job is to do: turned into the words of its command line, and read back.

`localvolume clean` takes these words. The path is not one of them: it is in the environment, under
upstream's names, where an administrator's own cleaner looks for it too.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass

from localvolume.cleaning.method import VolumeKind, VolumeMode
from localvolume.config.flags.table import Flag, add_flags
from localvolume.config.syntax.durations import parse_duration
from localvolume.config.variables import LOCAL_PV_BLKDEVICE, LOCAL_PV_FILESYSTEM, Variable
from localvolume.volumes.identity import Identity, from_annotation, to_annotation

_DEVICE = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class Order:
    """One volume as it was planned, and how its class wants it cleaned.

    `path` is where both agent and Job see it; `size_bytes`, `device` ("major:minor") and
    `identity` are what it must still be when the Job begins. `timeout_seconds` None: no limit.
    """

    kind: VolumeKind
    mode: VolumeMode
    path: str
    device: str
    size_bytes: int
    identity: Identity
    timeout_seconds: float | None = None
    command: tuple[str, ...] | None = None

    @property
    def variable(self) -> str:
        """The environment variable that carries the path."""
        return _variable(self.kind).name

    def arguments(self) -> list[str]:
        """The words after `localvolume clean`."""
        words = ["--kind", self.kind, "--volume-mode", self.mode, "--device", self.device]
        words += ["--size", str(self.size_bytes), "--identity", to_annotation(self.identity)]
        if self.timeout_seconds is not None:
            words += ["--timeout", f"{self.timeout_seconds:f}s"]
        # Always "--": what follows belongs to the cleaner, whatever it looks like.
        return [*words, "--", *(self.command or ())]


def add_order_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a parser take what `Order.arguments` returns; argparse itself keeps what follows "--"."""
    add_flags(parser, *_FLAGS)
    parser.add_argument("cleaner", metavar="-- COMMAND", nargs="*", help="blockCleanerCommand")


def read_order(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Order:
    """The order that these arguments and this environment give. Raises ValueError, saying why."""
    variable = _variable(arguments.kind)
    path = variable.text(environ)
    if not path.startswith("/"):
        raise ValueError(f"{variable} must be the absolute path of the volume, not {path!r}")
    return Order(
        kind=arguments.kind,
        mode=arguments.volume_mode,
        path=path,
        device=arguments.device,
        size_bytes=arguments.size,
        identity=arguments.identity,
        timeout_seconds=arguments.timeout,
        command=tuple(arguments.cleaner) or None,
    )


def _variable(kind: VolumeKind) -> Variable[str]:
    """The one that carries the path, by upstream's names (its common.sh and fsclean.sh)."""
    return LOCAL_PV_BLKDEVICE if kind == "block" else LOCAL_PV_FILESYSTEM


def _device(text: str) -> str:
    if not _DEVICE.fullmatch(text):
        raise ValueError(f'{text!r} is no device like "8:16"')
    return text


def _size(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is no number of bytes")
    return int(text)


def _identity(text: str) -> Identity:
    if not (found := from_annotation(text)):
        raise ValueError("an empty identity would fit any volume")
    return found


def _timeout(text: str) -> float:
    if (seconds := parse_duration(text)) <= 0:
        raise ValueError(f"{text!r} leaves no time")
    return seconds


_FLAGS = (
    Flag("--kind", "", "what the volume is", choices=("filesystem", "block"), required=True),
    Flag("--volume-mode", "", "how it is offered", choices=("Filesystem", "Block"), required=True),
    Flag("--device", "MAJOR:MINOR", "the device it must still be", _device, required=True),
    Flag("--size", "BYTES", "the size it must still have", _size, required=True),
    Flag("--identity", "JSON",
         "what it must still be: the annotation `localvolume.dev/identity`", _identity,
         required=True),
    Flag("--timeout", "DURATION", "how long it may take (default: as long as it takes)", _timeout),
)  # fmt: skip
