#!/bin/sh
# More than a model should read: the fleet cuts it and says so.
set -eu
warehouse=$(sed -n 's/.*"warehouse" *: *"\([^"]*\)".*/\1/p')
n=1
while [ "$n" -le 400 ]; do
  printf '%s-%04d: box of parts, shelf %d\n' "$warehouse" "$n" $((n % 17))
  n=$((n + 1))
done
