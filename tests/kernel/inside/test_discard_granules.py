"""S10: a thin pool forgets whole chunks alone; where two discards met within one, it survived."""

import os

from localvolume.cleaning.paces import CleaningPaces
from localvolume.host.block import operations
from tests.host.support_cleaning import DISCARD, SECRET, block_target, run_clean
from tests.host.support_devices import command
from tests.suite.units import MIB

SIZE = 96 * MIB


async def test_no_chunk_survives_between_two_discards(volume_group: str) -> None:
    pool = ["--type", "thin-pool", "--size", f"{SIZE >> 20}m", "--chunksize", "4m", "--name", "p"]
    command("lvcreate", *pool, "--discards", "nopassdown", "--yes", volume_group)
    thin = ["--thin", "--virtualsize", f"{SIZE >> 20}m", "--name", "raw"]
    command("lvcreate", *thin, f"{volume_group}/p")
    path = f"/dev/{volume_group}/raw"
    with open(path, "r+b", buffering=0) as disk:
        assert operations.discard_limits(disk.fileno()).granularity == 4 * MIB
        piece = (SECRET * MIB)[:MIB]
        disk.writelines(piece for _ in range(SIZE // MIB))
        os.fsync(disk.fileno())
    receipt = await run_clean(block_target(path), DISCARD, paces=CleaningPaces(step_bytes=10 * MIB))
    with open(path, "rb", buffering=0) as disk:
        dirty = [at for at in range(SIZE // MIB) if any(disk.read(MIB))]
    assert dirty == []
    assert (receipt.result, receipt.detail) == ("proved", "")
