SELECT DISTINCT ON (relay_id, kind) relay_id, kind, coalesce(last_at, seen_at), fields::text
FROM relay_document WHERE kind IN ('tls', 'dns', 'capabilities', 'write')
ORDER BY relay_id, kind, seen_at DESC
