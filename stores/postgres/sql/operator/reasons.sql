-- Why events of a destination wait: the $2 most frequent reasons among the $1 oldest, the dead first. Those
-- that are parked have none of their own.
select d.id, groups.reason, groups.detail, groups.count
from {outbox_destination} d
cross join lateral (
    select reason, detail, count(*) as count
    from (
        select reason, rtrim(split_part(detail, E'\n', 1), E'\r') as detail
        from (
            (select reason, detail from {outbox_waiting}
            where destination = d.id and state = 'dead' order by seq limit $1)
            union all
            (select reason, detail from {outbox_waiting}
            where destination = d.id and state = 'disabled' order by seq limit $1)
            union all
            (select reason, detail from {outbox_waiting}
            where destination = d.id and state = 'held' order by seq limit $1)
            union all
            (select reason, detail from {outbox_waiting}
            where destination = d.id and state = 'retrying' order by seq limit $1)
        ) w
        limit $1
    ) looked
    group by reason, detail
    order by count(*) desc, reason collate "C", detail collate "C" limit $2
) groups
order by d.id, groups.count desc, groups.reason collate "C", groups.detail collate "C";
