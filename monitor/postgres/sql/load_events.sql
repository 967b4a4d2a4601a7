SELECT kind, pubkey, d, id, created_at, expires, event
FROM report WHERE expires IS NULL OR expires > $1
ORDER BY kind, d
