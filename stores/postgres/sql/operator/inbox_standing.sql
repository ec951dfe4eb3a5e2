-- Whether a row is done, and for how long its lease still runs, in microseconds.
select status = 'processed',
    case when status = 'claimed' and expires_at > clock_timestamp()
        then ceil(1000000 * extract(epoch from expires_at - clock_timestamp()))::bigint
    end
from {inbox}
where source = $1 and event_id = $2 and handler = $3;
