"""LVM without a group or a disk: for what a real one does not do when it is told to.

It keeps the rows of its reports in memory, and answers as LVM words it. That the commands do the
same with a real one is shown in the guest (tests/kernel/inside).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from localvolume.backends.lvm.record import fields_of
from localvolume.backends.lvm.store import LvmStore
from localvolume.backends.model import Record
from localvolume.config.pools import LvmConfig, PoolConfig
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from localvolume.host.process.commands import Finished
from localvolume.host.process.commandsync import OUTPUT_LIMIT
from localvolume.volumes.lvtags import encode
from tests.suite.units import MIB

EXTENT = 4 * MIB
POOL = "tp"
_numbers = count()


class ToldLvm:
    """A `Run` that is a group by itself. Each gate of a group is the process's: names differ."""

    def __init__(self, *, thin: bool) -> None:
        self.group = f"told{next(_numbers)}"
        self.uuid = "group-uuid"
        #: As which group it reports itself.
        self.told_name = self.group
        self.thin = thin
        self.rows: dict[str, dict[str, str]] = {}
        #: Called with each command before it is done.
        self.before: Callable[[list[str]], None] = lambda argv: None
        #: Commands, or the words in them, that are said to be done and are not.
        self.ignored: set[str] = set()
        #: What fails, by a word of it, and what is said then.
        self.failing: dict[str, str] = {}
        self.asked: list[str] = []
        #: What a thin volume has of its pool, as `dmsetup status` ends.
        self.mapped = "0 -"
        #: What is made is rounded up to this.
        self.unit = EXTENT
        if thin:
            self.has(POOL, 400 * MIB, lv_layout="thin,pool", data_percent="1.0", zero="zero")

    def has(self, name: str, size: int = 12 * MIB, tags: Sequence[str] = (), **row: str) -> None:
        """Another volume, active."""
        number = str(len(self.rows) + 1)
        self.rows[name] = {
            "lv_name": name,
            "lv_uuid": f"uuid-{next(_numbers)}",
            "vg_name": self.group,
            "lv_size": str(size),
            "lv_layout": "linear",
            "lv_role": "public",
            "lv_tags": ",".join(sorted(tags)),
            "lv_active": "active",
            "lv_permissions": "writeable",
            "lv_path": f"/dev/{self.group}/{name}",
            "lv_kernel_major": "254",
            "lv_kernel_minor": number,
            **row,
        }

    def holds(self, record: Record, size: int = 12 * MIB, **row: str) -> None:
        """A volume of ours, with that record in its tags."""
        kind = {"lv_layout": "thin,sparse", "pool_lv": POOL} if self.thin else {}
        self.has(record.name, size, sorted(encode(fields_of(record))), **{**kind, **row})

    def tags(self, name: str) -> frozenset[str]:
        return frozenset(self.rows[name]["lv_tags"].split(","))

    def down(self, name: str) -> None:
        """Somebody has deactivated it."""
        gone = {"lv_active": "", "lv_kernel_major": "-1", "lv_kernel_minor": "-1"}
        self.rows[name].update(gone)

    def __call__(
        self,
        argv: Sequence[str],
        timeout: float,
        *,
        output_limit: int = OUTPUT_LIMIT,
        env: Mapping[str, str] | None = None,
    ) -> Finished:
        words = list(argv[1:]) if argv[0] == "lvm" else list(argv)
        self.before(words)
        self.asked.append(" ".join(words))
        for word, said in self.failing.items():
            if word in words:
                return Finished(tuple(argv), 5, "", said, False, 0.0)
        answer = self._answer(words) if not self.ignored & set(words) else "successfully removed"
        return Finished(tuple(argv), 0, answer, "", False, 0.0)

    def _answer(self, words: list[str]) -> str:
        command, where = words[0], words[-1].rpartition("/")[2]
        rows = list(self.rows.values())
        if command == "fullreport":
            segments = [{"lv_uuid": row["lv_uuid"], "zero": row.get("zero", "")} for row in rows]
            free = {"pv_uuid": "pv", "pv_allocatable": "allocatable", "segtype": "free"}
            free["pvseg_size"] = str(int(self._group()["vg_free"]) // EXTENT)
            return _report(vg=[self._group()], lv=rows, seg=segments, pvseg=[free])
        if command == "lvs":
            # Looking for what killed commands left finds nothing.
            return _report(lv=[] if "--all" in words else rows)
        if command == "dmsetup" and "thin" in words:
            return f"0 24576 thin {self.mapped}\n"
        if command == "lvcreate":
            name, tags = _after("--name", words)[0], _after("--addtag", words)
            if "--snapshot" in words:
                self._snapshot(where, name, tags, words)
                return ""
            size = int((_after("--size", words) + _after("--virtualsize", words))[0][:-1])
            thin = {"lv_layout": "thin,sparse", "pool_lv": where} if "--thin" in words else {}
            self.has(name, -(-size // self.unit) * self.unit, tags, **thin)
        elif command == "lvextend":
            self.rows[where]["lv_size"] = _after("--size", words)[0][:-1]
        elif command == "lvchange":
            self._change(self.rows[where], words)
        elif command == "lvremove":
            uuid = _after("--select", words)[0].split()[0].removeprefix("lv_uuid=")
            (name,) = [name for name, row in self.rows.items() if row["lv_uuid"] == uuid]
            del self.rows[name]
            return f'  Logical volume "{name}" successfully removed.'
        return ""

    def _snapshot(self, origin: str, name: str, tags: Sequence[str], words: list[str]) -> None:
        thin = {"lv_layout": "thin,sparse", "pool_lv": POOL, "origin": origin}
        size = int(self.rows[origin]["lv_size"])
        self.has(name, size, tags, **thin, lv_role="public,snapshot,thinsnapshot")
        if _after("--setactivationskip", words) == ["y"]:
            self.down(name)

    def _group(self) -> dict[str, str]:
        return {
            "vg_name": self.told_name,
            "vg_uuid": self.uuid,
            "vg_size": str(800 * MIB),
            "vg_free": str(400 * MIB),
            "vg_extent_size": str(EXTENT),
            "vg_missing_pv_count": "0",
            "vg_permissions": "writeable",
        }

    def _change(self, row: dict[str, str], words: list[str]) -> None:
        tags = {tag for tag in row["lv_tags"].split(",") if tag}
        tags = tags - {*_after("--deltag", words)} | {*_after("--addtag", words)}
        row["lv_tags"] = ",".join(sorted(tags))
        if "--refresh" in words:
            row["lv_suspended"] = ""
        if _after("--activate", words) == ["n"]:
            self.down(row["lv_name"])
        elif "--activate" in words:
            row.update(lv_active="active", lv_kernel_major="254", lv_kernel_minor="9")


def _after(option: str, words: list[str]) -> list[str]:
    return [value for word, value in pairwise(words) if word == option]


def _report(**parts: list[dict[str, str]]) -> str:
    return json.dumps({"report": [parts]})


Told = tuple[LvmStore, ToldLvm]


@contextmanager
def told_pool(locks: Path, *, thin: bool = True) -> Iterator[Told]:
    """A pool of such a group."""
    lvm = ToldLvm(thin=thin)
    config = PoolConfig(
        name="p",
        host_dir="",
        mount_dir="",
        provisioner="x",
        backend="lvm",
        lvm=LvmConfig(group=lvm.group, thin_pool=POOL if thin else ""),
    )
    store = LvmStore(config, lvm, locks=str(locks))
    try:
        yield store, lvm
    finally:
        store.close()


def raw(name: str = "pvc-1", **fields: Any) -> Record:
    """A raw volume, which takes no mkfs to make."""
    known: dict[str, Any] = {
        "state": "making",
        "size_bytes": 12 * MIB,
        "claim_uid": f"uid-{name}",
        "volume_mode": "Block",
    }
    return Record(name=name, backend="lvm", directory="", **{**known, **fields})


def snapshot(origin: Record, name: str = "s") -> Record:
    """A snapshot that is to be cut."""
    return snapshot_record(origin, name, origin.size_bytes)


def at_look(lvm: ToldLvm, number: int, act: Callable[[], object]) -> None:
    """Do something right before LVM is asked for its volumes for that time, from now on."""
    seen = 0

    def before(words: list[str]) -> None:
        nonlocal seen
        if words[0] in ("lvs", "fullreport") and "--all" not in words:
            seen += 1
            if seen == number:
                act()

    lvm.before = before
