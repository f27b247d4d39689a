"""Kafka on a volume of ours: its messages outlive pod and process."""

from __future__ import annotations

import pytest

from tests.cluster.support_objects import Objects
from tests.databases.support_ground import Ground
from tests.databases.support_images import provide
from tests.databases.support_kafka import make_topic, received, send
from tests.databases.support_neighbour import neighbour
from tests.databases.support_sets import applied

pytestmark = [
    pytest.mark.databases,
    pytest.mark.needs("databases", "kubelet", "loop", "ext4"),
]

#: What a single broker needs to be told otherwise than three.
ALONE = {
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "0@localhost:9093",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
    "KAFKA_DEFAULT_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_MIN_INSYNC_REPLICAS": "1",
}


@pytest.fixture(scope="module", autouse=True)
def image(ground: Ground) -> None:
    ground.give(provide("kafka"))


def test_messages_outlive_pod_and_process(ground: Ground, objects: Objects) -> None:
    with applied(ground, objects, "kafka", "256Mi", replicas=1, environment=ALONE) as kafka:
        kafka.ready(0)
        make_topic(kafka, copies=1)
        send(kafka, 0, 0, 300)
        said = kafka.run(0, "sh", "-c", "id -u; ls /var/lib/kafka/data")
        assert said.split() == ["1000", "logs", "lost+found"]

        kafka.made_again(0)
        assert received(kafka, 0) == [*range(300)]

        # Nothing is written out in good order: it recovers by its log.
        send(kafka, 0, 300, 300)
        kafka.kill(0)
        assert received(kafka, 0) == [*range(600)]


def test_a_mount_above_the_volume_of_the_image_gets_nothing_of_it(
    ground: Ground, objects: Objects
) -> None:
    """Why the page mounts at just that path: the runtime puts a directory of its own there."""
    ground.storage_class(objects, "kafka", "ext4")
    with neighbour(ground.plane, "kafka", "kafka", "32Mi", place="/var/lib/kafka") as pod:
        ours, below = pod.run("stat -c %d /var/lib/kafka /var/lib/kafka/data").split()
        assert ours != below
