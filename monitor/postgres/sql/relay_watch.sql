-- Where a relay comes from may change; it is never made a candidate again.
UPDATE relay r
SET source = n.source, first_seen = least(r.first_seen, n.first_seen), candidate = r.candidate AND n.candidate
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::boolean[]) AS n(url, source, first_seen, candidate)
WHERE r.url = n.url
  AND (r.source <> n.source OR n.first_seen < r.first_seen OR r.candidate AND NOT n.candidate)
