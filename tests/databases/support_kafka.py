"""Kafka of the page, asked with its own programs."""

from __future__ import annotations

from tests.databases.support_sets import Database

_TOPIC = "kept"
_SERVER = "localhost:9092"
_TOOLS = "org.apache.kafka.tools"


def make_topic(database: Database, *, copies: int) -> None:
    options = [f"--replication-factor={copies}", "--partitions=1", f"--topic={_TOPIC}"]
    _tool(database, 0, "TopicCommand", "--create", *options)


def send(database: Database, number: int, first: int, messages: int, *, width: int = 100) -> None:
    """So many messages from that number on, by that broker; all replicas in sync have
    acknowledged them once this returns."""
    lines = [f"{one}".ljust(width, ".") for one in range(first, first + messages)]
    # One by one, by all replicas in sync: it ends with an error at the first that is not
    # acknowledged.
    options = ["--topic", _TOPIC, "--sync", "--timeout=0"]
    _tool(database, number, "ConsoleProducer", *options, input="\n".join(lines))


def received(database: Database, number: int) -> list[int]:
    """The numbers of all messages that there are, in the order of the log."""
    # Of the partition itself, without a group of consumers, which would be kept in a topic.
    options = ["--topic", _TOPIC, "--partition=0", "--offset=earliest", "--timeout-ms=8000"]
    said = _tool(database, number, "consumer.ConsoleConsumer", *options)
    return [int(line.rstrip(".")) for line in said.splitlines() if line]


def _tool(
    database: Database,
    number: int,
    name: str,
    *options: str,
    input: str | None = None,  # noqa: A002
) -> str:
    tool = ["tool", f"{_TOOLS}.{name}", "--bootstrap-server", _SERVER]
    return database.run(number, *tool, *options, input=input)
