SELECT name FROM vantage WHERE pubkey = $1 AND NOT revoked
