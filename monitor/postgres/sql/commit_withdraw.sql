DELETE FROM report WHERE kind = 30166 AND d = ANY($1::text[])
