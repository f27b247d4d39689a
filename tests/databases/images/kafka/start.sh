#!/bin/sh
# Kafka as in its official image: settings come from KAFKA_... variables, by Kafka's own program for
# that, which also formats a log directory that has nothing yet.
set -eu

mkdir -p /tmp/config
said=$(tool kafka.docker.KafkaDockerWrapper setup --default-configs-dir /opt/database \
  --mounted-configs-dir /mnt/shared/config --final-configs-dir /tmp/config 2>&1) || case $said in
  *'already formatted'*) ;;
  *)
    echo "$said" >&2
    exit 1
    ;;
esac
exec java ${KAFKA_HEAP_OPTS:--Xms256m -Xmx256m} -XX:+ExitOnOutOfMemoryError \
  -Dlog4j2.configurationFile=/opt/database/log4j2.properties -cp '/opt/database/jars/*' \
  kafka.Kafka /tmp/config/server.properties
