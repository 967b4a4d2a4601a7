INSERT INTO report (kind, pubkey, d, id, created_at, expires, event)
SELECT * FROM unnest($1::integer[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::text[])
ON CONFLICT (kind, pubkey, d) DO UPDATE
SET id = excluded.id, created_at = excluded.created_at, expires = excluded.expires, event = excluded.event
WHERE report.created_at <= excluded.created_at
