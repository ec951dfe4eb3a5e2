    update {own:table} o set {own:mark_column} = {own:mark_value}
    from done{own:mark_join}
    where {own:seq} = done.seq and {own:is_number} and {own:id} = done.id and {own:pending}
    returning done.seq, not ({own:pending}) as goes
