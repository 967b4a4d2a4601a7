-- A row per change; what is as it was is confirmed. A reply's sample is another
-- every day, which is no change. last_at never moves back.
WITH n AS (
    SELECT DISTINCT ON (relay_id, kind) relay_id, kind, at, fields::jsonb AS fields
    FROM unnest($1::integer[], $2::text[], $3::timestamptz[], $4::text[]) AS n(relay_id, kind, at, fields)
    ORDER BY relay_id, kind, at DESC
), newest AS (
    SELECT n.*, d.seen_at, coalesce(d.fields - 'sample' = n.fields - 'sample', false) AS same
    FROM n
    LEFT JOIN LATERAL (
        SELECT seen_at, fields FROM relay_document d
        WHERE d.relay_id = n.relay_id AND d.kind = n.kind
        ORDER BY seen_at DESC LIMIT 1
    ) d ON true
), confirmed AS (
    UPDATE relay_document d
    SET fields = w.fields, last_at = greatest(d.last_at, d.seen_at, w.at)
    FROM newest w
    WHERE w.same AND d.relay_id = w.relay_id AND d.kind = w.kind AND d.seen_at = w.seen_at
), trimmed AS (
    -- The newest hundred of a kind are enough to see how a relay has changed.
    DELETE FROM relay_document d
    USING newest w, LATERAL (
        SELECT o.seen_at FROM relay_document o
        WHERE o.relay_id = w.relay_id AND o.kind = w.kind
        ORDER BY o.seen_at DESC OFFSET $5 LIMIT 1
    ) oldest
    WHERE NOT w.same AND d.relay_id = w.relay_id AND d.kind = w.kind AND d.seen_at < oldest.seen_at
)
INSERT INTO relay_document (relay_id, kind, seen_at, fields)
SELECT relay_id, kind, CASE WHEN at > seen_at OR seen_at IS NULL THEN at ELSE seen_at + interval '1 microsecond' END, fields
FROM newest
WHERE NOT same
