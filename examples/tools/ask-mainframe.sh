#!/bin/sh
# Never answers in time: the fleet stops it, and its children with it.
cat >/dev/null
sleep 60
