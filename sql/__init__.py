"""The SQL library: one file, one table. `lib/` has macros, then staging, core, marts and advice, each reading only below."""
