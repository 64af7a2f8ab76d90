#!/usr/bin/env bash
# Measures the event library beside its floor and prints the table of
# docs/benchmarks.md. Takes about six minutes on a machine that does nothing
# else; ends non-zero when a target is missed.
#
#   bench/run.sh [go test flags, such as -run Publish or -args -rounds 21]
#
# Needs PostgreSQL's programs and pgbench. PGQUE_UPSTREAM_GIT names a clone of
# PgQue, to measure with the real SQL; without it the stand-in is measured.
set -euo pipefail
cd "$(dirname "$0")/.."
export PGQUE_BENCH=1
exec go test -count=1 -timeout 60m -v ./bench/ "$@"
