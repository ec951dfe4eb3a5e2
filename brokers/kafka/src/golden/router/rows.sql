-- The rows that the records beside this are of, each inserted in a run of its own tables.
create table outboxevent (id uuid primary key, aggregatetype varchar(255) not null, aggregateid varchar(255),
    type varchar(255) not null, payload jsonb, occurred_at timestamptz, version int, source varchar(255));
create table outbox_text (id uuid primary key, aggregatetype varchar(255) not null, aggregateid varchar(255),
    type varchar(255) not null, payload text);
create table outbox_bytes (id uuid primary key, aggregatetype varchar(255) not null, aggregateid varchar(255),
    type varchar(255) not null, payload bytea);
create table outbox_number (id bigint primary key, aggregatetype varchar(255) not null, aggregateid bigint,
    type varchar(255) not null, payload text);
insert into outboxevent values
 ('0194d5e0-0000-4000-8000-000000000001','order','1','order.placed','{"total": 12.50, "of": ["ü", 1e3], "a": null}','2026-01-02T03:04:05.250001Z',3,'/shop'),
 ('0194d5e0-0000-4000-8000-000000000002','Order','1','OrderPaid','"a text"','2026-01-02T03:04:05Z',1,'/shop'),
 ('0194d5e0-0000-4000-8000-000000000003','order','2','order.counted','7','2026-01-02T03:04:05Z',null,null),
 ('0194d5e0-0000-4000-8000-000000000004','order','ü 2','order.nothing','null','2026-01-02T03:04:05Z',1,'/shop'),
 ('0194d5e0-0000-4000-8000-000000000005','order','3','order.deleted',null,'2026-01-02T03:04:05Z',1,'/shop'),
 ('0194d5e0-0000-4000-8000-000000000006','order',null,'order.keyless','{}','2026-01-02T03:04:05Z',1,'/shop'),
 ('0194d5e0-0000-4000-8000-000000000007','order','4','order.list','[]','2026-01-02T03:04:05Z',1,'/shop');
insert into outbox_text values
 ('0194d5e0-0000-4000-8000-000000000011','order','1','order.placed','{"total":  12.50,"of":"ü"}'),
 ('0194d5e0-0000-4000-8000-000000000012','order','1','order.noted','no JSON: ü'),
 ('0194d5e0-0000-4000-8000-000000000013','order','2','order.empty',''),
 ('0194d5e0-0000-4000-8000-000000000014','order','3','order.deleted',null);
insert into outbox_bytes values
 ('0194d5e0-0000-4000-8000-000000000021','order','1','order.placed','\x0000000007fffe0a0d00'),
 ('0194d5e0-0000-4000-8000-000000000022','order','1','order.empty','\x'),
 ('0194d5e0-0000-4000-8000-000000000023','order','2','order.deleted',null),
 ('0194d5e0-0000-4000-8000-000000000024','order','2','order.placed','{"total":  12.50}');
insert into outbox_number values (17,'order',1,'order.placed','{"total": 1}');
