INSERT INTO audit (at, actor, kind, relays, note)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (at, actor, kind) DO NOTHING
