#!/bin/sh
# PostgreSQL in a StatefulSet. The first replica makes the database; each other copies it and follows.
#
# A replica without data asks the others first: where one of them has the data, nobody makes an empty
# database in its place.
set -eu

name=${HOSTNAME%-*}
ordinal=${HOSTNAME##*-}

# Says "f" for one that is written to, "t" for one that follows, and nothing where none answers.
follows() {
  psql --no-psqlrc -tA -h "$1" -c 'SELECT pg_is_in_recovery()' 2>/dev/null || true
}

primary() {
  for other in 0 1 2; do
    host=$name-$other.$name
    if [ "$other" != "$ordinal" ] && [ "$(follows "$host")" = f ]; then
      echo "$host"
      return
    fi
  done
}

others_are_known() {
  for other in 0 1 2; do
    if [ "$other" != "$ordinal" ] && getent hosts "$name-$other.$name" >/dev/null; then
      return 0
    fi
  done
  return 1
}

# By a file that is written last: a copy that was cut short is begun anew.
if [ ! -e "$PGDATA/complete" ]; then
  rm -rf "$PGDATA"
  from=$(primary)
  if [ -n "$from" ]; then
    pg_basebackup --host="$from" --pgdata="$PGDATA" \
      --write-recovery-conf --checkpoint=fast
  elif [ "$ordinal" = 0 ] && ! others_are_known; then
    initdb --username=postgres --auth=trust --encoding=UTF8 --locale=C.UTF-8 --pgdata="$PGDATA"
    echo 'host all,replication all all trust' >>"$PGDATA/pg_hba.conf"
  else
    echo "$HOSTNAME has no data, and finds no replica to copy it from" >&2
    exit 1
  fi
  touch "$PGDATA/complete"
  sync -f "$PGDATA/complete"
fi

# Group rights that kubelet gives for fsGroup are more than PostgreSQL allows.
chmod 0700 "$PGDATA"
exec postgres -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories=/tmp \
  -c cluster_name="$HOSTNAME" \
  -c max_wal_size=64MB -c min_wal_size=32MB -c wal_keep_size=64MB -c shared_buffers=32MB "$@"
