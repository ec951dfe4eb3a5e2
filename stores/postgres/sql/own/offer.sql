-- Holds only what is pending, so that the relay finds it at once however long the history is.
create index concurrently if not exists {own:index} on {own:table} ({own:plain_order}) where {own:plain_pending};
