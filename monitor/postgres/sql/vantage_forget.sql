DELETE FROM vantage_relay vr USING vantage v WHERE vr.vantage_id = v.id AND v.name = $1
