SELECT relay_id, "from", until, note, actor
FROM maintenance WHERE until > $1
ORDER BY relay_id, "from", until
