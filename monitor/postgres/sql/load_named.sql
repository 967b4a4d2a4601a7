-- What the newest sweep found.
SELECT count(*), count(*) FILTER (WHERE waiting)
FROM discovered WHERE last_seen = (SELECT max(last_seen) FROM discovered)
