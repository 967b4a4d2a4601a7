UPDATE invitation SET used_at = $2, used_by = $3 WHERE token = $1
