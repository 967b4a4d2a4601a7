SELECT token, name, group_name, created, expires, actor
FROM invitation WHERE used_at IS NULL AND expires > $1 ORDER BY name
