SELECT last_seq FROM vantage WHERE name = $1
