DELETE FROM report WHERE pubkey <> $1
