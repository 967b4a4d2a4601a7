-- A cut to the leader must free its lock: the server gives up within 15 s.
SELECT set_config('tcp_keepalives_idle', '5', false),
       set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '2', false),
       set_config('tcp_user_timeout', '15000', false)
