"""How a volume is made clean: turns `blockCleanerCommand` into a method, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

MethodName = Literal["delete-files", "discard", "zero", "overwrite", "reset-signatures", "command"]
VolumeKind = Literal["filesystem", "block"]
VolumeMode = Literal["Filesystem", "Block"]

# Where upstream's image keeps its scripts. A script of the same name elsewhere is the
# administrator's own, and is run, not interpreted.
_SCRIPTS: Final = "/scripts/"
# The first word by which an administrator names one of our methods: ["localvolume", "zero"].
_OURS: Final = "localvolume"
# More is a typing error, not a policy: three passes over a 4 TB disk take about a day.
_MOST_PASSES: Final = 100


class MethodInvalid(ValueError):
    """The configured command names no way to clean: the administrator must correct it."""


@dataclass(frozen=True, slots=True)
class Method:
    """One way to clean.

    `passes`: how often the whole device is written, for `zero` (at least 1) and `overwrite` (passes
    of random data; a pass of zeros follows); 0 for the others.
    `command`: the argument list of the administrator's own cleaner, for `command` only.
    """

    name: MethodName
    passes: int = 0
    command: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.name == "command":
            return " ".join(self.command)
        if self.name == "overwrite" or self.passes > 1:
            return f"{self.name} x{self.passes}"
        return self.name


DELETE_FILES: Final = Method("delete-files")
DISCARD: Final = Method("discard")
ZERO: Final = Method("zero", passes=1)
RESET_SIGNATURES: Final = Method("reset-signatures")


def choose_method(
    block_cleaner_command: tuple[str, ...] | None,
    *,
    volume_kind: VolumeKind,
    volume_mode: VolumeMode,
) -> Method:
    """The method for one volume; pure.

    `block_cleaner_command`: the class's `blockCleanerCommand`, None if the key is absent.
    `volume_kind`: what the volume is on the node, as recorded when it was published.
    `volume_mode`: what the PersistentVolume offers; a block device may be offered as a
    filesystem, which the kubelet then makes on it.

    | command | method |
    |---|---|
    | (any, for a filesystem) | delete-files |
    | absent, volumeMode Block | zero |
    | absent, volumeMode Filesystem | reset-signatures |
    | `/scripts/quick_reset.sh` | reset-signatures |
    | `/scripts/dd_zero.sh` [n=1] | zero, n passes |
    | `/scripts/shred.sh` [n=3] | overwrite, n passes |
    | `/scripts/blkdiscard.sh` | discard |
    | `localvolume` `discard`, `zero` [n=1], `overwrite` [n=3], `reset-signatures` | that |
    | anything else | that command |

    Upstream's default, quick_reset, leaves the old blocks in place. Under a filesystem the next
    tenant cannot read them; on a raw device they can, so there the default is to write zeros.

    Raises MethodInvalid.
    """
    if volume_kind == "filesystem":
        return DELETE_FILES
    if block_cleaner_command is None:
        return ZERO if volume_mode == "Block" else RESET_SIGNATURES
    if not block_cleaner_command or not block_cleaner_command[0]:
        raise MethodInvalid("blockCleanerCommand is empty: leave the key out for the default")
    program, *arguments = block_cleaner_command
    if program == _OURS:
        return _ours(arguments)
    if program.startswith(_SCRIPTS):
        upstream = _upstream(program.removeprefix(_SCRIPTS), arguments)
        if upstream is not None:
            return upstream
    return Method("command", command=block_cleaner_command)


def _ours(arguments: list[str]) -> Method:
    name, *rest = arguments or [""]
    match name:
        case "zero":
            return Method("zero", passes=_passes(name, rest, default=1))
        case "overwrite":
            return Method("overwrite", passes=_passes(name, rest, default=3))
        case "discard" | "reset-signatures" if rest:
            raise MethodInvalid(f"blockCleanerCommand: {name} takes no argument, got {rest[0]!r}")
        case "discard":
            return DISCARD
        case "reset-signatures":
            return RESET_SIGNATURES
    raise MethodInvalid(
        f"blockCleanerCommand: {name!r} is no method of localvolume; there are discard,"
        " zero [passes], overwrite [passes] and reset-signatures"
    )


def _upstream(script: str, arguments: list[str]) -> Method | None:
    """What a script of upstream's image does; ignores further arguments, as the scripts do."""
    match script:
        case "quick_reset.sh":
            return RESET_SIGNATURES
        case "blkdiscard.sh":
            return DISCARD
        case "dd_zero.sh":
            return Method("zero", passes=_passes(script, arguments[:1], default=1))
        case "shred.sh" if arguments[:1] in (["0"], ["00"], ["000"]):
            return ZERO  # shred -z -n 0: only its last pass, of zeros
        case "shred.sh":
            return Method("overwrite", passes=_passes(script, arguments[:1], default=3))
        case "fsclean.sh":
            raise MethodInvalid(
                "blockCleanerCommand: fsclean.sh deletes files, and this volume is a block device"
            )
    return None


def _passes(name: str, arguments: list[str], *, default: int) -> int:
    if not arguments:
        return default
    text = arguments[0]
    passes = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
    if len(arguments) > 1 or not 1 <= passes <= _MOST_PASSES:
        raise MethodInvalid(
            f"blockCleanerCommand: {name} takes one number of passes from 1 to {_MOST_PASSES},"
            f" got {' '.join(arguments)!r}"
        )
    return passes
