-- By the primary key, which begins with the vantage.
DELETE FROM vantage_relay vr
USING vantage v, relay r
WHERE vr.vantage_id = v.id AND vr.relay_id = r.id AND r.url = ANY($1::text[])
