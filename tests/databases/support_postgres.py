"""PostgreSQL of the page, asked with its own psql."""

from __future__ import annotations

from localvolume_lab.controlplane.kubectl import KubectlFailed
from tests.databases.support_sets import Database


def ask(database: Database, number: int, statement: str) -> str:
    """What the replica answers; raises KubectlFailed with what it refuses."""
    psql = ["psql", "--no-psqlrc", "-tA", "-v", "ON_ERROR_STOP=1", "-c", statement]
    return database.run(number, *psql)


def make_table(database: Database) -> None:
    ask(database, 0, "CREATE TABLE kept (number integer PRIMARY KEY, content text)")


def insert(database: Database, first: int, rows: int, *, width: int = 100) -> None:
    """So many rows from that number on, in one transaction; acknowledged once this returns."""
    content = f"repeat(md5(number::text), {width // 32})"
    series = f"generate_series({first}, {first + rows - 1}) AS number"
    # What repeats itself would be stored compressed.
    ask(database, 0, "ALTER TABLE kept ALTER content SET STORAGE EXTERNAL")
    ask(database, 0, f"INSERT INTO kept SELECT number, {content} FROM {series}")


def count(database: Database, number: int) -> int:
    return int(ask(database, number, "SELECT count(*) FROM kept"))


def counted(database: Database, number: int) -> int | None:
    """The same; None as long as it cannot be asked."""
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
