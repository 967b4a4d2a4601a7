-- The days' partitions, by name.
SELECT c.relname
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'observation'::regclass AND c.relname LIKE 'observation\_2%'
ORDER BY c.relname
