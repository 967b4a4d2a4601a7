-- A newer invitation takes the place of an open one; old ones are of no use.
DELETE FROM invitation WHERE name = $1 AND used_at IS NULL OR expires < $2
