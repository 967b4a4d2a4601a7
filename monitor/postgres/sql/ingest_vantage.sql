-- No row: the vantage is unknown, or the batch was stored before.
UPDATE vantage
SET last_seq = $2, last_seen = greatest(last_seen, $3), impaired_since = $4, health = $5, skew_ms = $6,
    networks = coalesce($7::text[], networks)
WHERE name = $1 AND last_seq < $2
RETURNING id
