-- Versions of engines, comparable.

-- A version as one number that sorts: 0.19.1 -> 19001. Post-releases and builds of a version count as it; NULL where it is none.
create or replace macro version_number(version) as
    try_cast(regexp_extract(version, '^v?(\d+)\.(\d+)', 1) as bigint) * 1000000
    + try_cast(regexp_extract(version, '^v?(\d+)\.(\d+)', 2) as bigint) * 1000
    + coalesce(try_cast(regexp_extract(version, '^v?\d+\.\d+\.(\d+)', 1) as bigint), 0);
