DELETE FROM invitation WHERE name = $1 AND used_at IS NULL
