#!/bin/sh
# Exits with 0 where the broker of this machine leads: keepalived asks it once a second.
#
#   leads.sh [ADDRESS]    ADDRESS is that of [metrics] listen, by default 127.0.0.1:9180
#
# A broker with a full journal is not ready for emitters, but leads: without recipients it would stay full.
curl --silent --max-time 1 "http://${1:-127.0.0.1:9180}/readyz" | grep --quiet --extended-regexp '"ready": true|"journal_full"'
