INSERT INTO relay_document (relay_id, kind, seen_at, fields, raw)
SELECT n.relay_id, 'nip11', $1, n.fields::jsonb, n.raw
FROM unnest($2::integer[], $3::text[], $4::text[]) AS n(relay_id, fields, raw)
ON CONFLICT (relay_id, kind, seen_at) DO UPDATE SET fields = excluded.fields, raw = excluded.raw
