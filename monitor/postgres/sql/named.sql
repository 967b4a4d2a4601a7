-- A commit whose answer was lost may be tried again.
INSERT INTO discovered (url, kinds, authors, first_seen, last_seen, waiting)
SELECT n.url, n.kinds::integer[], n.authors, $1, $1, n.waiting
FROM unnest($2::text[], $3::text[], $4::integer[], $5::boolean[]) AS n(url, kinds, authors, waiting)
ON CONFLICT (url) DO UPDATE
SET kinds = excluded.kinds, authors = excluded.authors, waiting = excluded.waiting,
    last_seen = greatest(discovered.last_seen, excluded.last_seen)
RETURNING url, first_seen
