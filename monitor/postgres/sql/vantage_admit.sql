-- Records stay; what was said of the machine before does not. Another key begins
-- its numbers anew: whoever had the former one may have used them up.
WITH known AS (
    UPDATE vantage
    SET group_name = $2, pubkey = $3, networks = $4, enrolled = $5, revoked = false,
        last_seq = CASE WHEN pubkey = $3 THEN last_seq ELSE 0 END,
        last_seen = NULL, skew_ms = 0, impaired_since = NULL, health = '{}'
    WHERE name = $1
    RETURNING last_seq
), added AS (
    INSERT INTO vantage (name, group_name, pubkey, networks, enrolled)
    SELECT $1, $2, $3, $4, $5
    WHERE NOT EXISTS (SELECT FROM vantage WHERE name = $1)
    RETURNING last_seq
)
SELECT last_seq FROM known UNION ALL SELECT last_seq FROM added
