#!/bin/sh
# Runs the broker in its container: it creates or upgrades the tables, then starts it.
#
# Docker starts a container again whatever its exit code is. A broker that another one has replaced ends with 4, and would
# take the journal back. So the container stays then, without a broker: its health check fails until somebody restarts it.

setup_xbusbroker -c "$XBUS_CONFIG" || exit

start_xbusbroker -c "$XBUS_CONFIG" &
running=$!
trap 'kill -TERM "$running"' TERM INT
wait "$running"
code=$?
# A signal ends the wait before it ends the broker.
while kill -0 "$running" 2>/dev/null; do
    wait "$running"
    code=$?
done

if [ "$code" -eq 4 ]; then
    echo "start-broker: another broker has this journal; restart this container only if it is to take the journal back" >&2
    sleep infinity &
    running=$!
    wait "$running"
    exit 0
fi
exit "$code"
