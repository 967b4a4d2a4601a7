DELETE FROM discovered WHERE last_seen < $1
