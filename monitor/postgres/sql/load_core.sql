SELECT generation, served FROM core
