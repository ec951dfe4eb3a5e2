    delete from {own:table} o
    using done{own:mark_join}
    where {own:seq} = done.seq and {own:is_number} and {own:id} = done.id
    returning done.seq, true as goes
