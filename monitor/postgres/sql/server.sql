SELECT current_setting('server_version_num')::integer, current_setting('server_encoding')
