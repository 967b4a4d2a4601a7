#!/bin/sh
# Stops Pharos before it is removed; an upgrade restarts it when it is done.
set -e

if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	systemctl disable --now --quiet pharos.service pharos-vantage.service
fi
