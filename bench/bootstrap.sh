#!/usr/bin/env bash
# How long bootstrap takes, whole process, beside "psql -X -1 -f pgque.sql" on
# the same server in the same run. First install: at most 1.15 times psql.
# Nothing to do: at most 0.3 times.
#
#   bench/bootstrap.sh [ROUNDS]     from the root of a checkout
#
# PG* name a server whose login may create databases; vendor/pgque (or DIR)
# must be filled. Prints milliseconds and ratios of the medians.
set -euo pipefail
rounds=${1:-9}
dir=${DIR:-vendor/pgque}
export PGHOST PGPORT PGUSER PGQUE_VENDOR_ALLOW_STANDIN=1
unset PGDATABASE
work=$(mktemp -d)
trap 'rm -rf "$work"; for n in psql ours; do psql -qX -d postgres -c "drop database if exists bench_$n" >/dev/null 2>&1; done' EXIT
go build -o "$work/pgque-vendor" ./cmd/pgque-vendor

now() { date +%s%N; }
timed() { # NAME COMMAND…: appends milliseconds to NAME
  local name=$1 start; shift
  start=$(now)
  "$@" >/dev/null 2>"$work/err" || { cat "$work/err"; exit 1; }
  echo $(( ($(now) - start) / 10000 )) >>"$work/$name"
}
median() { sort -n "$work/$1" | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }

for ((i = 0; i < rounds; i++)); do
  for n in psql ours; do
    psql -qX -d postgres -c "drop database if exists bench_$n" -c "create database bench_$n" 2>/dev/null
  done
  # Turn about, so that neither always comes first.
  if ((i % 2)); then
    timed psql env PGDATABASE=bench_psql psql -X -1 -f "$dir/pgque.sql"
    timed first env PGDATABASE=bench_ours "$work/pgque-vendor" bootstrap --dir "$dir" --no-grant
  else
    timed first env PGDATABASE=bench_ours "$work/pgque-vendor" bootstrap --dir "$dir" --no-grant
    timed psql env PGDATABASE=bench_psql psql -X -1 -f "$dir/pgque.sql"
  fi
  timed again env PGDATABASE=bench_ours "$work/pgque-vendor" bootstrap --dir "$dir" --no-grant
done
p=$(median psql)
for name in psql first again; do
  m=$(median $name)
  awk -v n="$name" -v m="$m" -v p="$p" 'BEGIN {printf "%-6s %7.1f ms   %.2f of psql\n", n, m / 100, m / p}'
done
