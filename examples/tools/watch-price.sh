#!/bin/sh
# Long enough to be cancelled while it runs.
cat >/dev/null
sleep 60
printf 'the price did not move\n'
