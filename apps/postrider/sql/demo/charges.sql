-- What the handler `charge` did. Nothing keeps an order from being charged twice: the inbox must.
create table charges (
    number integer primary key,
    event_id text not null,
    order_id text not null
) strict;
