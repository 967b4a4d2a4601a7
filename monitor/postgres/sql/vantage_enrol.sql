WITH known AS (
    UPDATE vantage
    SET group_name = $2, pubkey = $3, networks = $4, revoked = $6
    WHERE name = $1
    RETURNING id
)
INSERT INTO vantage (name, group_name, pubkey, networks, enrolled, revoked)
SELECT $1, $2, $3, $4, $5, $6
WHERE NOT EXISTS (SELECT FROM known)
