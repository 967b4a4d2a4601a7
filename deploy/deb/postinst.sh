#!/bin/sh
# Makes the user and the data directory; on an upgrade a running Pharos starts
# anew. It never starts one that was not running: it would watch the built-in
# relays before anybody looked at the configuration.
set -e

[ "$1" = configure ] || exit 0
if ! getent passwd pharos >/dev/null; then
	adduser --system --group --quiet --home /var/lib/pharos --no-create-home --gecos Pharos pharos
fi
if [ ! -d /var/lib/pharos ]; then
	install -d -o pharos -g pharos -m 0700 /var/lib/pharos
fi
# The configuration may come to hold a database's password.
if [ -z "$2" ]; then
	chgrp pharos /etc/pharos/pharos.yaml
	chmod 0640 /etc/pharos/pharos.yaml
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	if [ -n "$2" ]; then
		systemctl try-restart pharos.service pharos-vantage.service
	else
		echo "Pharos is installed. Look at /etc/pharos/pharos.yaml, then: systemctl enable --now pharos"
	fi
fi
