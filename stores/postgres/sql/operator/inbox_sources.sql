-- The sources that have a row of an event and a handler, by a leap of the index for each source.
with recursive sources as (
    (select i.source from {inbox} i order by i.source limit 1)
    union all
    select (select i.source from {inbox} i where i.source > s.source order by i.source limit 1)
    from sources s where s.source is not null
)
select s.source from sources s
join {inbox} i on i.source = s.source and i.event_id = $1 and i.handler = $2
order by s.source;
