-- Whoever takes it up second waits here until the first has.
SELECT name, group_name, expires, used_at IS NOT NULL, used_by
FROM invitation WHERE token = $1 FOR UPDATE
