-- Store label records that belong to no call: a prompt, an import, a grant.
-- KEYS: full mark, source counts, then the areas of LABELS.
-- ARGV: ttl of the full mark (ms), then those of LABELS.
store_labels(KEYS[1], KEYS[2], 2, ARGV[1], 2)
return 1
