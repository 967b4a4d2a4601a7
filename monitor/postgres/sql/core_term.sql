SELECT term FROM core
