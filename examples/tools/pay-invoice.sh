#!/bin/sh
# A write: it starts at most once. The receipt holds the time and the process, so that a second
# payment would show.
set -eu
input=$(cat)
invoice=$(printf '%s' "$input" | sed -n 's/.*"invoice" *: *"\([^"]*\)".*/\1/p')
amount=$(printf '%s' "$input" | sed -n 's/.*"amount" *: *"\([^"]*\)".*/\1/p')
printf '{"type":"spend","service":"bank","amount":"0.35","currency":"EUR","quantity":"1","unit":"transfer"}\n' >&3
printf 'paid %s EUR for %s, receipt %s-%s\n' "$amount" "$invoice" "$(date -u +%H%M%S)" "$$"
