#!/bin/sh
# Leaves /var/lib/pharos and the user, also on a purge: the service key in it
# is this monitor's identity, and cannot be made again.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "$1" = purge ] && [ -d /var/lib/pharos ]; then
	echo "/var/lib/pharos is still there, with the service key and the history; remove it yourself when nobody needs them."
fi
