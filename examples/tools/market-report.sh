#!/bin/sh
# A slow read: safe to run again, which is what happens when its worker is lost.
set -eu
product=$(sed -n 's/.*"product" *: *"\([^"]*\)".*/\1/p')
printf '{"type":"spend","service":"market-data","amount":"0.0042","currency":"USD","quantity":"1","unit":"report"}\n' >&3
sleep 4
printf 'Report on %s (attempt %s): demand is steady, prices rose by 2 %% in a year.\n' "$product" "$TOOLFLEET_ATTEMPT"
