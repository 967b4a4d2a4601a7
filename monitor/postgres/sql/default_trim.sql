DELETE FROM observation_default WHERE time < $1
