-- Those of the core's own process have no key, and are the configuration's.
UPDATE vantage SET revoked = true WHERE name = $1 AND pubkey <> ''
