"""`localvolume forget`: remove the record of a prepared volume, when its administrator says so.

The record keeps a volume from being offered or cleaned for an object that is not known to be its
own. Only a person can know better; nothing else removes a record.
"""

from __future__ import annotations

import argparse
import os

from localvolume.cli.output.refusal import say
from localvolume.config.flags.table import Flag, add_flags
from localvolume.config.variables import RECORDS_DIR
from localvolume.host.filesystem.volumenotes import AnotherMount
from localvolume.host.mount.mounts import read_mount_table
from localvolume.static.facts.probe import probe
from localvolume.static.model import Entry
from localvolume.static.recording import Records
from localvolume.volumes.record import BadRecord, Record, Unreadable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        help="a volume: a mount point, or a device or a link to one, as seen from here",
    )
    text = f"where the records of devices are (default: {RECORDS_DIR})"
    add_flags(parser, Flag("--records-dir", "DIR", text, RECORDS_DIR.parse))


def run(arguments: argparse.Namespace) -> int:
    try:
        records = Records(arguments.records_dir or RECORDS_DIR.read(os.environ))
    except ValueError as error:
        say("forget", error)
        return 2
    well = [_forget(path, records) for path in arguments.paths]
    return 0 if all(well) else 1


def _forget(path: str, records: Records) -> bool:
    where = os.path.abspath(path)
    try:
        entry = probe(Entry("", "", where, where), read_mount_table().at(where), offered=True)
        found = None if entry.problem else records.forget(entry)
    except (OSError, AnotherMount, BadRecord) as error:
        say("forget", f"{path}: nothing is forgotten: {error}")
        return False
    if entry.problem is not None:
        say("forget", f"{path}: nothing is forgotten: {entry.problem.text}")
        return False
    if isinstance(found, Record):
        holder = f"the claim {found.claim}" if found.claim else "no claim"
        print(f"{path}: forgot generation {found.generation}, which {holder} held")
        return True
    if isinstance(found, Unreadable) and (entry.kind == "filesystem" or found.may_be):
        print(f"{path}: removed what could not be read, or may be another's ({found.reason})")
        return True
    why = {None: "there is no record of it", "nowhere": "no place for records is known here"}
    text = found.reason if isinstance(found, Unreadable) else why[found]
    say("forget", f"{path}: nothing is forgotten: {text}")
    return False
