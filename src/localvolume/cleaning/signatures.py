"""Making a block device look blank: no filesystem, table or superblock is recognised any more.

Does what upstream's quick_reset.sh does (mkfs and wipefs), but makes no filesystem on the way. The
content between the signatures stays; the receipt says so.
"""

from __future__ import annotations

from localvolume.cleaning import device, proof
from localvolume.cleaning.steps import Steps
from localvolume.cleaning.supervise import run_command
from localvolume.cleaning.unfinished import mark_unfinished, note_bytes
from localvolume.host.block import blockdev
from localvolume.host.process.commands import CommandMissing, CommandTimedOut

_WIPEFS_SECONDS = 300.0


async def reset_signatures(steps: Steps) -> device.Outcome:
    """Erase every signature libblkid knows, and the first and last MiB, where backups live."""
    held = steps.held
    steps.total_bytes = held.size_bytes
    steps.name = "erasing signatures"
    steps.touched = True
    note = note_bytes(held.size_bytes)
    await mark_unfinished(steps)
    # wipefs first: it finds superblocks and copies anywhere on the device. It uses our descriptor:
    # the path may lead elsewhere by now. Without --force it would insist on opening exclusively,
    # which we already do, and spare partition tables. It spares swap signatures, as our note is
    # one; that of a real swap area lies in the first MiB.
    spared = ("--types", "noswap") if note else ()
    argv = ("wipefs", "--all", "--force", *spared, held.own_path)
    try:
        finished = await run_command(steps, argv, timeout=_WIPEFS_SECONDS, pass_fds=(held.fd,))
    except CommandMissing as error:
        raise steps.failed(f"util-linux is needed for this: {error}") from error
    except CommandTimedOut as error:
        raise steps.failed(str(error)) from error
    if finished.returncode:
        raise steps.failed(finished.stderr.strip() or f"wipefs ended with {finished.returncode}")
    steps.name = "writing zeros over the first and last MiB"
    regions = proof.behind(proof.edges(held.size_bytes), note)
    await device.zero_regions(steps, regions)
    steps.name = "reading back"
    found = await proof.read_regions(steps, regions)
    if found.dirty is not None:
        raise device.not_zero(steps, found.dirty)
    await device.finish(steps)
    await refuse_recognised(steps)
    steps.done_bytes = held.size_bytes
    return "signatures-only", found.samples, "what lies between them was not erased"


async def refuse_recognised(steps: Steps) -> None:
    """Raises CleaningFailed if libblkid recognises anything on the held device."""
    left = await signature(steps)
    if left is not None:
        raise steps.failed(f"still recognised as {left.type}")


async def signature(steps: Steps) -> blockdev.Signature | None:
    """What libblkid recognises on the held device. Raises CleaningFailed if nobody can tell."""
    try:
        return await blockdev.read_signature(steps.held.own_path)
    except (OSError, blockdev.SignatureUnknown, CommandMissing, CommandTimedOut) as error:
        raise steps.failed(f"its signatures cannot be read: {error}") from error
