#!/bin/sh
# Cassandra as in its official image: CASSANDRA_... variables go into its configuration, and it
# listens at the pod's own address.
set -eu

address=$(hostname -i | cut -d ' ' -f 1)
sed -e "s/ADDRESS/$address/" \
  -e "s/NAME/${CASSANDRA_CLUSTER_NAME:-Test Cluster}/" \
  -e "s/SEEDS/${CASSANDRA_SEEDS:-$address}/" \
  -e "s/SNITCH/${CASSANDRA_ENDPOINT_SNITCH:-SimpleSnitch}/" \
  /opt/database/cassandra.yaml >/tmp/cassandra.yaml
printf 'dc=%s\nrack=%s\n' "${CASSANDRA_DC:-dc1}" "${CASSANDRA_RACK:-rack1}" \
  >/tmp/cassandra-rackdc.properties
exec java "-Xms${MAX_HEAP_SIZE:-512M}" "-Xmx${MAX_HEAP_SIZE:-512M}" ${JVM_EXTRA_OPTS:-} \
  @/opt/database/jvm.options -XX:+ExitOnOutOfMemoryError \
  -cp '/tmp:/opt/database/jars/*' org.apache.cassandra.service.CassandraDaemon
