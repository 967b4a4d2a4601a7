UPDATE core SET generation = greatest(generation, $1::bigint), served = served OR $2
