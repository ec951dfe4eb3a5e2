-- $rows events of $keys keys, a hundred to a transaction, with payloads of $bytes bytes.
do $$
begin
  for chunk in 0 .. ($rows - 1) / 100 loop
    insert into outboxevent
      select gen_random_uuid(), 'order', (n % $keys)::text, 'order.placed', repeat('x', $bytes)
        from generate_series(chunk * 100 + 1, least(chunk * 100 + 100, $rows)) n;
    commit;
  end loop;
end
$$
