UPDATE core SET term = term + 1 RETURNING term
