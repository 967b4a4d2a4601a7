SELECT group_name, pubkey, networks, enrolled, last_seen, last_seq FROM vantage WHERE name = $1
