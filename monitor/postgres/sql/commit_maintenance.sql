INSERT INTO maintenance (relay_id, "from", until, note, actor)
SELECT r.id, n."from", n.until, n.note, n.actor
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::text[], $5::text[]) AS n(url, "from", until, note, actor)
JOIN relay r ON r.url = n.url
ON CONFLICT (relay_id, "from", until) DO UPDATE SET note = excluded.note, actor = excluded.actor
