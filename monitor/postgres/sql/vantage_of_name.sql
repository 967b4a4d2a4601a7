SELECT group_name, pubkey, revoked FROM vantage WHERE name = $1
