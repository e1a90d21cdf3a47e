-- Arithmetic of a pool that sequences share.

-- Most sequences N with N · mean + z · deviation · sqrt(N) within the pool (core.pool_demand shows where that comes from).
create or replace macro most_sequences(pool_tokens, mean_tokens, deviation_tokens, z) as
    floor((
        (sqrt(z ** 2 * deviation_tokens ** 2 + 4 * mean_tokens * pool_tokens) - z * deviation_tokens) / (2 * mean_tokens)
    ) ** 2)::bigint;
