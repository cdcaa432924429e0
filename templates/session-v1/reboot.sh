#!/bin/sh
# Ends the machine: it does not start again. A session gets another with its next command.
if [ "$(id -u)" -ne 0 ]; then
    echo "${0##*/}: only root may do that: sudo ${0##*/}" >&2
    exit 1
fi
kill -TERM 1
