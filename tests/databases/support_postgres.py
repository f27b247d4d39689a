"""PostgreSQL of the page, asked with its own psql."""

from __future__ import annotations

from collections.abc import Sequence

from localvolume_lab.controlplane.kubectl import KubectlFailed
from tests.databases.support_sets import Database


def ask(database: Database, number: int, statement: str) -> str:
    """What the replica answers; raises KubectlFailed with what it refuses."""
    psql = ["psql", "--no-psqlrc", "-tA", "-v", "ON_ERROR_STOP=1", "-c", statement]
    return database.run(number, *psql)


def make_table(database: Database) -> None:
    ask(database, 0, "CREATE TABLE kept (number integer PRIMARY KEY, content text)")
    # What repeats itself would be stored compressed.
    ask(database, 0, "ALTER TABLE kept ALTER content SET STORAGE EXTERNAL")


def insert(
    database: Database, first: int, rows: int, *, width: int = 100, primary: int = 0
) -> None:
    """So many rows from that number on, in one transaction; acknowledged once this returns."""
    content = f"repeat(md5(number::text), {width // 32})"
    series = f"generate_series({first}, {first + rows - 1}) AS number"
    ask(database, primary, f"INSERT INTO kept SELECT number, {content} FROM {series}")


def set_for_good(database: Database, number: int, setting: str, value: str) -> None:
    """Have the replica heed a setting from now on, and after its starts."""
    ask(database, number, f"ALTER SYSTEM SET {setting} = '{value}'")
    ask(database, number, "SELECT pg_reload_conf()")


def promote(database: Database, among: Sequence[int]) -> int:
    """Promote the replica that has most of the log, and have the others follow it; returns which.

    The former primary is gone. An operator does this; nothing of the page does.
    """
    has = "SELECT pg_last_wal_receive_lsn() - '0/0'"
    chosen = max(among, key=lambda number: int(ask(database, number, has)))
    assert ask(database, chosen, "SELECT pg_promote()") == "t"
    host = f"{database.pod(chosen)}.{database.name}"
    for other in set(among) - {chosen}:
        set_for_good(database, other, "primary_conninfo", f"host={host} user=postgres")
    return chosen


def count(database: Database, number: int) -> int:
    return int(ask(database, number, "SELECT count(*) FROM kept"))


def counted(database: Database, number: int) -> int | None:
    """How many rows there are; None as long as the replica cannot be asked."""
    try:
        return count(database, number)
    except KubectlFailed:
        return None


def fill(database: Database) -> tuple[int, str]:
    """Insert until it refuses: how many rows it has acknowledged, and what it said."""
    rows = 0
    while True:
        try:
            insert(database, rows, 500, width=8192)
        except KubectlFailed as refused:
            return rows, str(refused)
        rows += 500
