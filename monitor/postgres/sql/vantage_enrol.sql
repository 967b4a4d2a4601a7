-- 0: the name belongs to a vantage with another key, which is not revoked.
WITH known AS (
    UPDATE vantage
    SET group_name = $2, pubkey = $3, networks = $4, revoked = $6
    WHERE name = $1 AND (pubkey IN ('', $3) OR revoked)
    RETURNING id
), added AS (
    INSERT INTO vantage (name, group_name, pubkey, networks, enrolled, revoked)
    SELECT $1, $2, $3, $4, $5, $6
    WHERE NOT EXISTS (SELECT FROM vantage WHERE name = $1)
    RETURNING id
)
SELECT (SELECT count(*) FROM known) + (SELECT count(*) FROM added)
