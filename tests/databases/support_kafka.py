"""Kafka of the page, asked with its own programs."""

from __future__ import annotations

import re

from tests.databases.support_sets import Database

_TOPIC = "kept"
_SERVER = ("--bootstrap-server", "localhost:9092")
_TOOLS = "org.apache.kafka.tools"


def make_topic(database: Database, *, copies: int) -> None:
    options = [f"--replication-factor={copies}", "--partitions=1", f"--topic={_TOPIC}"]
    _tool(database, 0, f"{_TOOLS}.TopicCommand", *_SERVER, "--create", *options)


def send(database: Database, number: int, first: int, messages: int, *, width: int = 100) -> None:
    """So many messages from that number on, by that broker; all replicas in sync have
    acknowledged them once this returns."""
    lines = [f"{one}".ljust(width, ".") for one in range(first, first + messages)]
    # One by one, by all replicas in sync: it ends with an error at the first that is not
    # acknowledged.
    options = ["--topic", _TOPIC, "--sync", "--timeout=0"]
    _tool(database, number, f"{_TOOLS}.ConsoleProducer", *_SERVER, *options, input="\n".join(lines))


def received(database: Database, number: int) -> list[int]:
    """The numbers of all messages that there are, in the order of the log."""
    # Of the partition itself, without a group of consumers, which would be kept in a topic.
    options = ["--topic", _TOPIC, "--partition=0", "--offset=earliest", "--timeout-ms=8000"]
    said = _tool(database, number, f"{_TOOLS}.consumer.ConsoleConsumer", *_SERVER, *options)
    return [int(line.rstrip(".")) for line in said.splitlines() if line]


def stored(database: Database, number: int) -> list[int]:
    """The numbers of the messages that the broker itself has in its log."""
    log = f"/var/lib/kafka/data/logs/{_TOPIC}-0/{0:020}.log"
    options = ["--print-data-log", "--files", log]
    said = _tool(database, number, "kafka.tools.DumpLogSegments", *options)
    return [int(one) for one in re.findall(r"payload: (\d+)\.", said)]


def leader_and_in_sync(database: Database, number: int) -> tuple[int | None, set[int]]:
    """The broker that leads, if there is one, and those that are in sync, as a broker tells."""
    options = ["--describe", f"--topic={_TOPIC}"]
    said = _tool(database, number, f"{_TOOLS}.TopicCommand", *_SERVER, *options)
    found = re.search(r"Leader: (\S+)\s.*Isr: ([\d,]*)", said)
    assert found is not None, said
    leader, in_sync = found.groups()
    which = {int(one) for one in in_sync.split(",") if one}
    return (int(leader) if leader.isdecimal() else None), which


def _tool(
    database: Database,
    number: int,
    name: str,
    *options: str,
    input: str | None = None,  # noqa: A002
) -> str:
    return database.run(number, "tool", name, *options, input=input)
