#!/bin/sh
# Waits until the kernels run that are there from the beginning. When one does not start: why.
while :; do
    said=$(curl -s -w ' (%{http_code})' http://localhost:49999/health)
    case $said in
        *'(200)') exit 0 ;;
        *'(500)')
            echo "$said"
            exit 1
            ;;
    esac
    sleep 0.2
done
