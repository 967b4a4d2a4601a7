SELECT id, url FROM relay WHERE url = ANY($1::text[])
