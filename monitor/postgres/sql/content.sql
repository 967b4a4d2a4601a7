-- What a database of ours holds, for people and to know it again.
SELECT (SELECT count(*) FROM relay), (SELECT count(*) FROM transition), EXISTS (SELECT FROM core),
    ARRAY(SELECT DISTINCT pubkey FROM report ORDER BY pubkey)
