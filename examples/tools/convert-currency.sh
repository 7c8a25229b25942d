#!/bin/sh
# Fixed rates, so that a demonstration can be compared. Not for real money.
set -eu

input=$(cat)
amount=$(printf '%s\n' "$input" | sed -nE 's/.*"amount" *: *([0-9.eE+-]+).*/\1/p')
from=$(printf '%s\n' "$input" | sed -nE 's/.*"from" *: *"([A-Z]{3})".*/\1/p')
to=$(printf '%s\n' "$input" | sed -nE 's/.*"to" *: *"([A-Z]{3})".*/\1/p')

awk -v amount="$amount" -v from="$from" -v to="$to" 'BEGIN {
    # Units of a currency for one euro.
    rate["EUR"] = 1; rate["USD"] = 1.08; rate["GBP"] = 0.85; rate["NOK"] = 11.5; rate["JPY"] = 162
    printf "{\"amount\":%.2f,\"currency\":\"%s\",\"rate\":%.6f}\n",
        amount * rate[to] / rate[from], to, rate[to] / rate[from]
}'
