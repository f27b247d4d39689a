"""Cassandra of the page, asked with its driver for Python."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tests.databases.support_sets import Database

#: Run in the container: each statement of standard input at the consistency of the first argument;
#: the rows of the last one are printed.
_CLIENT = """
import json, sys
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy
level = getattr(ConsistencyLevel, sys.argv[1])
# Asks this replica and no other.
policy = WhiteListRoundRobinPolicy(["127.0.0.1"])
profile = ExecutionProfile(policy, consistency_level=level, request_timeout=90)
cluster = Cluster(["127.0.0.1"], execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                  connect_timeout=60, control_connection_timeout=60)
session = cluster.connect()
for statement in json.load(sys.stdin):
    rows = session.execute(statement)
print(json.dumps([list(row) for row in rows or ()]))
cluster.shutdown()
"""


def ask(
    database: Database, number: int, statements: Sequence[str], *, level: str = "QUORUM"
) -> list[list[object]]:
    """What the last of them answers, asked of that replica; raises KubectlFailed."""
    # Its warnings are for those who write programs with it.
    python = ["python3", "-W", "ignore", "-c", _CLIENT, level]
    said = database.run(number, *python, input=json.dumps(list(statements)))
    found: list[list[object]] = json.loads(said.splitlines()[-1])
    return found


def make_table(database: Database, *, copies: int) -> None:
    strategy = f"{{'class': 'NetworkTopologyStrategy', 'dc1': {copies}}}"
    space = f"CREATE KEYSPACE kept WITH replication = {strategy}"
    ask(database, 0, [space, "CREATE TABLE kept.kept (number int PRIMARY KEY, content text)"])


def insert(database: Database, number: int, first: int, rows: int) -> None:
    """So many rows from that number on, by that replica; a quorum has acknowledged each of them
    once this returns."""
    ask(
        database,
        number,
        [
            f"INSERT INTO kept.kept (number, content) VALUES ({one}, '{one}')"
            for one in range(first, first + rows)
        ],
    )


def found(database: Database, number: int, *, level: str = "QUORUM") -> list[int]:
    """The numbers of all rows."""
    rows = ask(database, number, ["SELECT number FROM kept.kept"], level=level)
    return sorted(int(str(one)) for (one,) in rows)


def members(database: Database, number: int) -> dict[str, str]:
    """The state of each member that a replica knows, such as UN, by host ID."""
    said = database.run(number, "nodetool", "status")
    lines = re.findall(r"^([UD][NLJM]) .* ([0-9a-f-]{36}) ", said, re.MULTILINE)
    return {one: state for state, one in lines}


def remove_lost(database: Database, number: int) -> None:
    """As the page says of a lost replica: the others forget it, once they take it for dead."""
    (lost,) = database.until(lambda: _down(database, number))
    database.run(number, "nodetool", "removenode", lost, seconds=300)


def unseed(database: Database, seeds: str) -> None:
    """As the page says of a lost seed: pods that are made from now on have only those seeds."""
    name = f"statefulset/{database.name}"
    kept = {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}
    database.plane.kubectl("patch", name, "--type=merge", "-p", json.dumps(kept))
    database.plane.kubectl("set", "env", name, f"CASSANDRA_SEEDS={seeds}")


def repair(database: Database, number: int) -> None:
    database.run(number, "nodetool", "repair", "--full", "kept", seconds=300)


def _down(database: Database, number: int) -> list[str]:
    return [one for one, state in members(database, number).items() if state.startswith("D")]
