INSERT INTO invitation (token, name, group_name, created, expires, actor)
VALUES ($1, $2, $3, $4, $5, $6)
