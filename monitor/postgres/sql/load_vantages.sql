SELECT id, name, group_name, pubkey, networks, enrolled, revoked, last_seen, last_seq, skew_ms, impaired_since, health::text
FROM vantage ORDER BY name
