SELECT DISTINCT ON (relay_id) relay_id, fields::text, raw
FROM relay_document WHERE kind = 'nip11'
ORDER BY relay_id, seen_at DESC
