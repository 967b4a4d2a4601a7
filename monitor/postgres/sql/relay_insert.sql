-- The anti-join keeps relays that are there from using up ids.
INSERT INTO relay (url, network, source, first_seen, candidate)
SELECT n.url, n.network, n.source, n.first_seen, n.candidate
FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::boolean[])
     AS n(url, network, source, first_seen, candidate)
WHERE NOT EXISTS (SELECT FROM relay r WHERE r.url = n.url)
ON CONFLICT (url) DO NOTHING
