SELECT to_regclass('goose_db_version') IS NOT NULL
