-- Leases. All of these lock a lease's row before they look at it, in the order of the partitions, and read
-- the clock afterwards.

-- What a crash must not take back is flushed at commit, also where the database is set to commit at ease.
create function {outbox_durably}() returns void language plpgsql as $$
begin
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'local', true);
    end if;
end
$$;

-- Refuses a transaction that sees one moment alone. Whoever waits for a lock here and then looks must see what was
-- committed meanwhile; the row that was locked is most often not changed, so the server itself would not refuse it. Our
-- own sessions are set to it; behind a pooler that hands each transaction to another session the database's or the role's
-- default is what counts.
create function {outbox_read_committed}() returns void language plpgsql stable as $$
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception using errcode = 'PRL01', message = format(
            'default_transaction_isolation is %s here: the relay has to see what others commit while it waits for them',
            current_setting('transaction_isolation'));
    end if;
end
$$;

-- The right to write under a lease: its row is locked against whoever would take the partition over, until
-- the caller's transaction ends. A token that is merely read would be no fence: the partition could go to
-- another between the reading and the write.
create function {outbox_fence}(p_partition smallint, p_owner text, p_token bigint) returns void
language plpgsql as $$
begin
    perform {outbox_read_committed}();
    perform 1 from {outbox_lease} l
    where l.partition = p_partition and l.owner = p_owner and l.token = p_token
    for share;
    if not found then
        raise exception using errcode = 'PRF01', message = 'the lease was taken over';
    end if;
end
$$;

-- The same right, for writes that must not arrive out of order: each has a number, and the later the higher.
-- False if this one was written before. One that was on its way for so long that a later one came first would
-- undo what happened since, and is refused.
create function {outbox_fence_in_order}(
    p_partition smallint, p_owner text, p_token bigint, p_number bigint) returns boolean
language plpgsql as $$
declare
    v_settled bigint;
begin
    perform {outbox_fence}(p_partition, p_owner, p_token);
    update {outbox_renewal} n set settled = p_number
    where n.partition = p_partition and n.settled < p_number;
    if found then
        return true;
    end if;
    select n.settled into v_settled from {outbox_renewal} n where n.partition = p_partition;
    if v_settled > p_number then
        raise exception using errcode = 'PRC01', message =
            'a later settlement of the partition was written already; nothing was written';
    end if;
    return v_settled < p_number;
end
$$;

-- Says that a relay is alive, forgets those that fell silent, and counts the others. Its own row comes first:
-- two that were silent, as after an outage, and forgot each other first would wait in a circle. What somebody
-- else is just writing is left to him, so nobody waits for anything after that.
create function {outbox_announce}(
    p_owner text, p_current boolean, p_lease_micros bigint,
    out relays bigint, out current_relays bigint)
language plpgsql as $$
declare
    v_now timestamptz := clock_timestamp();
begin
    insert into {outbox_relay} as r (owner, expires_at, current)
    values (p_owner, v_now + p_lease_micros * interval '1 microsecond', p_current)
    on conflict (owner) do update
        set expires_at = excluded.expires_at, current = excluded.current;
    delete from {outbox_relay} r
    where r.owner in (
        select silent.owner from {outbox_relay} silent
        where silent.expires_at <= v_now and silent.owner <> p_owner
        for update skip locked);
    select count(*), count(*) filter (where r.current) into relays, current_relays
    from {outbox_relay} r where r.expires_at > v_now;
end
$$;

-- The partitions that may be taken over at this moment.
create function {outbox_takeable}(
    p_free_for_micros bigint, p_dead_partition smallint, p_dead_owner text, p_dead_token bigint)
returns setof smallint language sql as $$
    select l.partition
    from {outbox_lease} l join {outbox_renewal} n on n.partition = l.partition
    where not l.paused
        and (l.owner is null or n.expires_at <= clock_timestamp()
            -- Whoever is dead is dead in all his partitions.
            or (l.owner = p_dead_owner and exists (
                select from {outbox_lease} d
                where (d.partition, d.owner, d.token)
                    = (p_dead_partition, p_dead_owner, p_dead_token))))
        -- A clock that stepped back since then makes it free in the future: free all the same.
        and (p_free_for_micros = 0 or greatest(interval '0', clock_timestamp()
                - case when l.owner is null then l.free_since else n.expires_at end)
            >= p_free_for_micros * interval '1 microsecond')
$$;

-- Grants what is free or lost, up to what is wanted, and tells who holds the rest. What another locks at
-- this moment is left out, so that nobody waits and nobody can block anybody: its owner is writing under
-- it, or somebody else is about to get it. `what` is census (number: relays, micros: those of them that are
-- current), granted (number: the token, count: takeovers), or held (number: the token, micros: until it
-- expires).
create function {outbox_acquire}(
    p_owner text, p_lease_micros bigint, p_wanted integer, p_free_for_micros bigint,
    p_host text, p_boot text, p_path text, p_current boolean,
    p_dead_partition smallint, p_dead_owner text, p_dead_token bigint)
returns table (what text, place smallint, holder text, number bigint, micros bigint,
    at_host text, at_boot text, at_path text, takeover_count integer)
language plpgsql set lock_timeout = '1s' as $$
declare
    v_now timestamptz;
    v_life uuid;
    v_free smallint[];
begin
    perform {outbox_read_committed}();
    perform {outbox_durably}();
    -- Who is proved dead gets no share any more: else half of what he had would wait for his row to run out.
    delete from {outbox_relay} r
    where r.owner in (
        select dead.owner from {outbox_relay} dead
        where dead.owner = p_dead_owner and dead.owner <> p_owner and exists (
            select from {outbox_lease} d
            where (d.partition, d.owner, d.token)
                = (p_dead_partition, p_dead_owner, p_dead_token))
        for update skip locked);
    return query
        select 'census', null::smallint, null::text, a.relays, a.current_relays,
            null::text, null::text, null::text, null::integer
        from {outbox_announce}(p_owner, p_current, p_lease_micros) a;
    -- Which life of the server this is has to be known before anything is read.
    insert into {outbox_life} (token)
    select gen_random_uuid() where not exists (select from {outbox_life})
    on conflict do nothing;
    v_life := (select l.token from {outbox_life} l);
    v_free := array(
        select l.partition from {outbox_lease} l
        where l.partition in (
            select {outbox_takeable}(p_free_for_micros, p_dead_partition, p_dead_owner, p_dead_token))
        order by l.partition
        limit greatest(p_wanted, 0)
        for update skip locked);
    -- Once more, now that nobody can prolong them: a renewal may have come between the look and the lock, and it
    -- does not change the row that was locked.
    v_free := array(
        select t.partition
        from {outbox_takeable}(p_free_for_micros, p_dead_partition, p_dead_owner, p_dead_token)
            t (partition)
        where t.partition = any (v_free)
        order by t.partition);
    v_now := clock_timestamp();
    return query
        with ended as (
            -- Who did not let go has died; unless the server was down since he was heard of last, by a
            -- crash or not: then he may have had to fall silent.
            select l.partition, case
                    when l.owner is null or n.life is distinct from v_life
                        or n.renewed_at < pg_postmaster_start_time() then 0
                    else 1
                end as died
            from {outbox_lease} l join {outbox_renewal} n on n.partition = l.partition
            where l.partition = any (v_free)
        ), stood as (
            -- How many deaths in a row each cursor has stood still through. One that is paused sends
            -- nothing, and `unrouted` never does.
            select c.partition, c.destination, c as cursor, at.digest,
                l.cursors -> c.destination ->> 0 = at.digest as is_still,
                case
                    when l.owner is null then 0
                    when l.cursors -> c.destination ->> 0 = at.digest
                        then (l.cursors -> c.destination ->> 1)::integer + e.died
                    else e.died
                end as deaths
            from {outbox_cursor} c
            join {outbox_lease} l on l.partition = c.partition
            join ended e on e.partition = c.partition
            join {outbox_destination} d on d.id = c.destination
            cross join lateral (
                select hashtextextended(encode(c.base, 'hex') || '@' || c.position, 0)::text
                    as digest) at
            where c.partition = any (v_free) and d.state = 'active' and d.id <> 'unrouted'
        ), stands as (
            -- Where some got further, one that stood still counts only if it has something to send: another
            -- cursor that moves does not show that what is behind this one does no harm.
            select s.partition, jsonb_object_agg(s.destination, jsonb_build_array(s.digest, s.deaths))
                    as cursors,
                case when bool_and(coalesce(s.is_still, false)) then max(s.deaths)
                    else max(s.deaths) filter (where s.deaths < 2 or exists (
                        select from {outbox} o
                        where o.partition = s.partition
                            and o.seq > greatest((s.cursor).floor, (s.cursor).position)
                            and not {outbox_passed}(s.cursor, o.xid, o.seq)))
                end as deaths
            from stood s group by s.partition)
        update {outbox_lease} l
        set owner = p_owner, token = l.token + 1,
            host = p_host, boot = p_boot, lock_path = p_path,
            -- Whoever let go left no name.
            takeovers = case when l.owner is null then 0 else greatest(s.deaths, e.died) end,
            cursors = coalesce(s.cursors, '{}')
        from ended e left join stands s using (partition)
        where l.partition = e.partition
        returning 'granted', l.partition, l.owner, l.token, 0::bigint,
            null::text, null::text, null::text, l.takeovers;
    update {outbox_renewal} n
    set expires_at = v_now + p_lease_micros * interval '1 microsecond', renewed_at = v_now,
        life = v_life, settled = 0
    where n.partition = any (v_free);
    return query
        select 'held', l.partition, l.owner, l.token,
            (extract(epoch from n.expires_at - v_now) * 1000000)::bigint,
            l.host, l.boot, l.lock_path, 0
        from {outbox_lease} l join {outbox_renewal} n on n.partition = l.partition
        where l.owner is not null and n.expires_at > v_now and not l.paused
            and l.partition <> all (v_free)
        order by l.partition;
end
$$;

-- Prolongs the leases that still stand, one row for each; the first row, without a partition, is the census
-- with the version of the definitions.
create function {outbox_renew}(
    p_owner text, p_lease_micros bigint, p_current boolean,
    p_partitions smallint[], p_tokens bigint[])
returns table (place smallint, number bigint, relays bigint, current_relays bigint)
language plpgsql as $$
declare
    v_kept smallint[];
begin
    perform {outbox_durably}();
    v_kept := array(
        select l.partition from {outbox_lease} l
        where l.owner = p_owner and l.partition = any (p_partitions) and exists (
            select from unnest(p_partitions, p_tokens) given (partition, token)
            where (given.partition, given.token) = (l.partition, l.token))
        order by l.partition
        for share);
    update {outbox_renewal} n
    set expires_at = clock_timestamp() + p_lease_micros * interval '1 microsecond',
        renewed_at = clock_timestamp(), life = (select token from {outbox_life})
    where n.partition = any (v_kept);
    return query
        select null::smallint, (select m.value::bigint from {outbox_meta} m
                where m.key = 'definitions_version'), a.relays, a.current_relays
        from {outbox_announce}(p_owner, p_current, p_lease_micros) a;
    return query
        select l.partition, l.token, 0::bigint, 0::bigint
        from {outbox_lease} l where l.partition = any (v_kept) order by l.partition;
end
$$;

-- Lets leases go. Those that are lost already are not touched. Whoever let its last partition go is
-- stopping, and is not to be counted on. If it is not, it announces itself again within a heartbeat.
create function {outbox_release}(
    p_partitions smallint[], p_owners text[], p_tokens bigint[]) returns void
language plpgsql as $$
declare
    v_kept smallint[];
    v_now timestamptz;
begin
    v_kept := array(
        select l.partition from {outbox_lease} l
        where l.partition = any (p_partitions) and exists (
            select from unnest(p_partitions, p_owners, p_tokens) given (partition, owner, token)
            where (given.partition, given.owner, given.token) = (l.partition, l.owner, l.token))
        order by l.partition
        for no key update);
    v_now := clock_timestamp();
    update {outbox_lease} l
    set owner = null, free_since = v_now, host = null, boot = null, lock_path = null,
        takeovers = 0
    where l.partition = any (v_kept);
    delete from {outbox_relay} r
    where r.owner = any (p_owners)
        and not exists (select from {outbox_lease} l where l.owner = r.owner);
end
$$;
