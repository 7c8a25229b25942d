#!/bin/sh
# A write. The confirmation is made from the idempotency key, as a real service would look it up: the
# same call gives the same booking, however often it is handed in.
set -eu

input=$(cat)
party=$(printf '%s\n' "$input" | sed -nE 's/.*"party" *: *([0-9]+).*/\1/p')
date=$(printf '%s\n' "$input" | sed -nE 's/.*"date" *: *"([0-9-]+)".*/\1/p')
time=$(printf '%s\n' "$input" | sed -nE 's/.*"time" *: *"([0-9:]+)".*/\1/p')

if [ "$party" -gt 8 ]; then
    echo "no table for $party: the largest seats 8; split the party or ask for 8 or fewer" >&2
    exit 1
fi

number=$(printf '%s' "$TOOLFLEET_IDEMPOTENCY_KEY" | cksum | cut -d ' ' -f 1)
printf 'booked: %s guests on %s at %s, confirmation TR-%s\n' "$party" "$date" "$time" "$number"
