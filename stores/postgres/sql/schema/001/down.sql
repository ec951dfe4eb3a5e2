-- Takes version 1 back: everything of Postrider's in this schema goes, events included.
drop view if exists {outbox_status};
drop function if exists {outbox_due}(smallint, text, bigint[], integer, bigint, timestamptz);
drop view if exists {outbox_status}, {outbox_tables};
drop function if exists {inbox_claim}(text, uuid, text, text, bytea, bigint, integer),
    {inbox_heartbeat}(text, uuid, text, bigint, bigint),
    {inbox_complete}(text, uuid, text, bigint, bytea), {inbox_release}(text, uuid, text, bigint, integer, boolean),
    {inbox_complete_step}(text, uuid, text, bigint, text, bytea),
    {inbox_accept}(text, uuid, text, text, bytea);
drop function if exists {outbox_own_room}(text, jsonb);
drop table if exists {outbox_own_passed}, {outbox_own_number};
drop table if exists {inbox_horizon}, {inbox_tombstone}, {inbox_step}, {inbox_result}, {inbox}, {outbox_audit},
    {outbox_request_row}, {outbox_request}, {outbox_settled}, {outbox_endpoint}, {outbox_waiting},
    {outbox_flush}, {outbox_life}, {outbox_relay}, {outbox_renewal}, {outbox_lease}, {outbox_destination},
    {outbox_scheduled}, {outbox};
drop function if exists {outbox_covers}({outbox_cursor}, bigint, bigint),
    {outbox_rename}(text, text, text, text, text, text);
drop function if exists {outbox_passed}({outbox_cursor}, bigint, bigint),
    {outbox_predates}({outbox_cursor}, bigint, bigint);
drop function if exists {outbox_range_passed}({outbox_range}, bigint, bigint), {outbox_ground}();
drop table if exists {outbox_cursor}, {outbox_range}, {outbox_meta};
drop function if exists {outbox_append_only}(), {outbox_rules}(), {outbox_headers_are_plain}(jsonb),
    {outbox_wrapping_add}(bigint, bigint), {outbox_partition_of}(text);
drop domain if exists {outbox_partition_number}, {inbox_status}, {inbox_payload_hash};
drop function if exists {enqueue}, {outbox_backlog}(), {outbox_given}(), {outbox_hold_keys}(text[]);
drop function if exists {outbox_settle}(smallint, text, bigint, uuid, boolean, jsonb, bigint),
    {outbox_fence_in_order}(smallint, text, bigint, bigint),
    {outbox_settle_many}(jsonb),
    {outbox_advance}(smallint, text, jsonb),
    {outbox_change_ranges}(smallint, text, jsonb, timestamptz),
    {outbox_log}(smallint, text, jsonb, bigint, text, timestamptz),
    {outbox_change}(smallint, text, jsonb, timestamptz),
    {outbox_enter}(smallint, text, jsonb, timestamptz),
    {outbox_promote}(smallint, text, bigint[], text[], timestamptz),
    {outbox_bump}(), {outbox_release}(smallint[], text[], bigint[]),
    {outbox_renew}(text, bigint, boolean, smallint[], bigint[]),
    {outbox_acquire}(text, bigint, integer, bigint, text, text, text, boolean, smallint, text, bigint),
    {outbox_takeable}(bigint, smallint, text, bigint),
    {outbox_announce}(text, boolean, bigint), {outbox_fence}(smallint, text, bigint),
    {outbox_durably}(), {outbox_read_committed}();
drop function if exists {outbox_cluster}();
drop function if exists {outbox_rewind}(smallint, text, bigint, bigint, text, bigint, bytea, bigint, bytea, bigint, bigint[],
    bigint[], bigint),
    {outbox_carry_out}(smallint, text, bigint, jsonb, integer), {outbox_tally}(text, jsonb, jsonb),
    {outbox_let_out}(smallint, text, text, integer, timestamptz),
    {outbox_requeue}(smallint, text, bigint, bigint, timestamptz),
    {outbox_discard}(smallint, text, bigint, timestamptz),
    {outbox_bring_out}(smallint, text, bigint, text, text, timestamptz),
    {outbox_admit}(smallint, text, bigint, integer), {outbox_history_start}();
drop function if exists {outbox_ahead}(), {outbox_asked_below}(smallint, bigint),
    {outbox_young}(bigint, bigint, timestamptz), {outbox_retire_to}(smallint, text, bigint, bigint),
    {outbox_empty}(smallint, text, bigint, bigint), {outbox_detach}(), {outbox_summarize}(),
    {outbox_age}(smallint, text, bigint, bigint),
    {outbox_young_from}(smallint, bigint, bigint, timestamptz),
    {outbox_retire_rows}(smallint, text, bigint, bigint, bigint[]),
    {outbox_forget_requests}(bigint, integer),
    {outbox_late}(smallint[], bigint[], bigint, bigint, bigint),
    {outbox_gone_back}(smallint[], bigint[], bigint[]), {outbox_is_own}(xid, bigint),
    {outbox_first_since}(bigint, bigint, timestamptz),
    {outbox_leapt}(bigint), {outbox_highest}(oid),
    {outbox_split}(bigint), {outbox_swap}(oid, bigint, bigint, bigint);
