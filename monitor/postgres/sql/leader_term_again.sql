-- No row: somebody else led since this core lost its lock.
UPDATE core SET term = term + 1 WHERE term = $1 RETURNING term
