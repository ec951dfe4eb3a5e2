//! Leases and the fence, where locks and clocks of a real server meet.

use std::time::Duration;

use postrider_core::lease::AcquireRequest;
use postrider_core::source::{DefinitionChange, OutboxSource, RenewRequest};
use postrider_core::waiting::{Passed, Settlement, SettlementPart};
use postrider_core::{ErrorKind, Lease, RelayId, Start, Timestamp};
use postrider_postgres::PostgresStore;

use crate::relay::{events, pass, read, stands};
use crate::support::{Fresh, LONG, acquire, destination, id};

fn request(owner: &RelayId) -> AcquireRequest {
    AcquireRequest {
        owner: owner.clone(),
        lease_duration: LONG,
        wanted: u16::MAX,
        free_for: Duration::ZERO,
        presence: None,
        current: true,
        dead: None,
    }
}

async fn take(store: &PostgresStore, owner: &RelayId) -> Vec<Lease> {
    let granted = store.acquire(&request(owner)).await.expect("acquire").granted;
    granted.into_iter().map(|granted| granted.lease).collect()
}

/// All leases end now.
async fn end(fresh: &Fresh) {
    fresh.run("update {outbox_renewal} set expires_at = clock_timestamp()").await;
}

/// R115: only the database's clock decides. The row's own time is what counts, not how long anybody waited.
#[tokio::test]
async fn a_lease_is_taken_when_the_database_says_so() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (store, lease) = fresh.relay().await;
    assert!(acquire(&store, LONG).await.is_none());
    end(&fresh).await;
    let granted = acquire(&store, LONG).await.expect("it has expired");
    assert!(granted.lease.token > lease.token);
    assert_eq!(granted.takeovers, 1);
    let part = SettlementPart::new(id("a"));
    let refused = store.settle(&Settlement { lease, parts: vec![part] }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
}

/// R114: the token grows at every acquisition, also for a relay of the same name, and what it wrote under
/// the old one is refused.
#[tokio::test]
async fn a_token_grows_also_for_the_same_name() {
    let Some(fresh) = Fresh::new(2).await else { return };
    let (store, _) = fresh.relay().await;
    let owner = RelayId::mint();
    end(&fresh).await;
    let mut tokens = Vec::new();
    for _ in 0..4 {
        let leases = take(&store, &owner).await;
        tokens.push(leases[0].token);
        end(&fresh).await;
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    let old = Lease {
        token: tokens[0],
        owner: owner.clone(),
        ..acquire(&store, LONG).await.unwrap().lease
    };
    let stale = Settlement { lease: old.clone(), parts: vec![SettlementPart::new(id("a"))] };
    assert_eq!(store.settle(&stale).await.unwrap_err().kind(), ErrorKind::Fenced);
    let renew = RenewRequest { owner, leases: vec![old], lease_duration: LONG, current: true };
    assert_eq!(store.renew(&renew).await.unwrap().kept, []);
}

/// R030, R114: relays that take partitions from each other all the time, let go, renew, and settle beside
/// that: no two ever hold one token, none waits for another in a circle, and every settlement that was
/// taken was its owner's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_race_for_partitions() {
    let Some(fresh) = Fresh::new(8).await else { return };
    fresh.relay().await;
    let mut tasks = Vec::new();
    for n in 0..4u64 {
        let store = fresh.store();
        tasks.push(tokio::spawn(async move {
            let (owner, mut all) = (RelayId::mint(), Vec::new());
            for round in 0..25 {
                let mut asks = request(&owner);
                // Some leases are over at once.
                asks.lease_duration = Duration::from_millis((n + round) % 3);
                let granted = store.acquire(&asks).await.expect("acquire").granted;
                let leases: Vec<Lease> = granted.into_iter().map(|granted| granted.lease).collect();
                all.extend(leases.iter().map(|lease| (lease.partition, lease.token)));
                let renew = RenewRequest {
                    owner: owner.clone(),
                    leases: leases.clone(),
                    lease_duration: Duration::from_millis(1),
                    current: true,
                };
                let settle = async {
                    for lease in leases.iter().rev() {
                        let parts = vec![SettlementPart::new(id("a"))];
                        let settlement = Settlement { lease: lease.clone(), parts };
                        if let Err(error) = store.settle(&settlement).await {
                            assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
                        }
                    }
                };
                let (renewed, ()) = tokio::join!(store.renew(&renew), settle);
                renewed.expect("renew");
                if round % 2 == 0 {
                    store.release(&leases).await.expect("release");
                }
            }
            all
        }));
    }
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.extend(task.await.expect("a relay"));
    }
    assert!(tokens.len() > 50, "too tame: {}", tokens.len());
    let all = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), all, "a token was granted twice");
}

/// F16: an owner that stopped between two statements, with its lease's row locked, blocks nobody: the other
/// partitions are granted at once, and its own as soon as the server ends its session.
#[tokio::test]
async fn an_owner_that_stopped_blocks_nobody() {
    let Some(fresh) = Fresh::new(3).await else { return };
    let (store, lease) = fresh.relay().await;
    let stopped = fresh.connect().await;
    let lock = format!(
        "set idle_in_transaction_session_timeout = '2s'; begin;
        select {{outbox_fence}}({}::smallint, '{}', {})",
        lease.partition.0,
        lease.owner.as_str(),
        lease.token
    );
    stopped.batch_execute(&fresh.sql(&lock)).await.unwrap();
    // What the row says is read without waiting for its lock; whoever ends it would wait.
    let ended = fresh.sql(
        "update {outbox_renewal} set expires_at = clock_timestamp()
        where partition in (select partition from {outbox_lease} where owner is null)",
    );
    fresh.connect().await.batch_execute(&ended).await.unwrap();
    let other = RelayId::mint();
    let mut asks = request(&other);
    asks.dead = Some(lease.clone());
    let granted = store.acquire(&asks).await.unwrap().granted;
    assert_eq!(granted.len(), 2, "the other two, without waiting");
    let began = std::time::Instant::now();
    loop {
        let granted = store.acquire(&asks).await.unwrap().granted;
        if let Some(taken) = granted.first() {
            assert_eq!(taken.lease.partition, lease.partition);
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "still locked");
        // waits: the server ends the session by its own clock
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A renewal that comes between a taker's look and its lock: whether it was kept, and whether the lease was granted. The taker
/// waits at a lock of the test's own when it has looked; without its second look, for a negative control.
async fn renewed_meanwhile(looks_twice: bool, isolation: &str) -> Option<(bool, bool)> {
    let fresh = Fresh::made(1).await?;
    let (store, lease) = fresh.relay().await;
    end(&fresh).await;
    let id = fresh
        .names
        .schema()
        .bytes()
        .fold(0, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let key = i64::from(id);
    fresh
        .run(&format!(
            "alter function {{outbox_takeable}} rename to looks;
            create function {{outbox_takeable}}(bigint, smallint, text, bigint)
            returns setof smallint language plpgsql as $$
            begin
                return query select {schema}.looks($1, $2, $3, $4);
                perform pg_advisory_xact_lock({key});
            end $$",
            schema = fresh.names.schema()
        ))
        .await;
    if !looks_twice {
        let text = "select pg_get_functiondef({text:outbox_acquire}::regproc)";
        let text: String =
            fresh.connect().await.query_one(&fresh.sql(text), &[]).await.unwrap().get(0);
        let (before, rest) = text.split_once("-- Once more").expect("the second look");
        let (_, after) = rest.split_once("v_now := ").expect("what comes behind it");
        fresh.run(&format!("{before}\n    v_now := {after}")).await;
    }
    let door = fresh.connect().await;
    door.batch_execute(&format!("select pg_advisory_lock({key})")).await.unwrap();
    let taker = {
        let level = format!("options=-cdefault_transaction_isolation%3D{isolation}");
        let store = PostgresStore::with(&fresh.url_with(&level), fresh.options()).unwrap();
        tokio::spawn(async move { store.acquire(&request(&RelayId::mint())).await })
    };
    let waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted
        and (classid::bigint << 32 | objid::bigint) = ";
    while fresh.number(&format!("{waits}{key}")).await == 0 {
        tokio::task::yield_now().await;
    }
    let owner = lease.owner.clone();
    let renew = RenewRequest { owner, leases: vec![lease], lease_duration: LONG, current: true };
    let kept = store.renew(&renew).await.expect("a renewal").kept;
    door.batch_execute(&format!("select pg_advisory_unlock({key})")).await.unwrap();
    let granted = taker.await.expect("an end").is_ok_and(|answer| !answer.granted.is_empty());
    Some((!kept.is_empty(), granted))
}

/// R115, INV-7: a lease that was prolonged while somebody looked at it is not taken from its owner, who counts on it. Who
/// looks once alone (negative control) takes it.
#[tokio::test]
async fn what_is_prolonged_meanwhile_is_not_taken() {
    for isolation in ["read%5C%20committed", "repeatable%5C%20read", "serializable"] {
        let Some(seen) = renewed_meanwhile(true, isolation).await else { return };
        assert_eq!(seen, (true, false), "{isolation}: two owners");
    }
    let control = renewed_meanwhile(false, "read%5C%20committed").await;
    assert_eq!(control, Some((true, true)), "the control sees no fault");
}

/// R114, INV-7: the fence holds the partition while the write is under way. Without the lock (negative
/// control) a takeover gets between the look at the token and the write, and a stale save slips in.
#[tokio::test]
async fn a_token_that_is_merely_read_is_no_fence() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (store, lease) = fresh.relay().await;
    events(&fresh, 2).await;
    let stale = fresh.connect().await;
    let looks = fresh.sql(&format!(
        "select 1 from {{outbox_lease}} where partition = 0 and owner = '{}' and token = {}",
        lease.owner.as_str(),
        lease.token
    ));
    let saves = fresh.sql("update {outbox_cursor} set replay_through = 77 where destination = 'a'");
    let saved = "select replay_through from {outbox_cursor} where destination = 'a'";
    stale.batch_execute("begin").await.unwrap();
    assert_eq!(stale.query(&looks, &[]).await.unwrap().len(), 1, "the token stands");
    let mut asks = request(&RelayId::mint());
    asks.dead = Some(lease.clone());
    let next = store.acquire(&asks).await.unwrap().granted.remove(0).lease;
    let from = stands(&store, &next, "a").await;
    let rows = read(&store, &next, &from).await;
    store.settle(&pass(&next, &from, &rows, Passed::Acked)).await.unwrap();
    stale.batch_execute(&saves).await.unwrap();
    stale.batch_execute("commit").await.unwrap();
    assert_eq!(fresh.number(saved).await, 77, "the control: a stale save slipped in");
    // With the fence nobody gets between.
    let fence = fresh.sql(&format!(
        "select {{outbox_fence}}(0::smallint, '{}', {})",
        next.owner.as_str(),
        next.token
    ));
    stale.batch_execute("begin").await.unwrap();
    stale.batch_execute(&fence).await.unwrap();
    asks.dead = Some(next.clone());
    assert_eq!(store.acquire(&asks).await.unwrap().granted, [], "not while a write is under way");
    stale.batch_execute("commit").await.unwrap();
    assert_eq!(store.acquire(&asks).await.unwrap().granted.len(), 1);
    assert!(stale.batch_execute(&fence).await.is_err(), "and afterwards the old token is none");
}

/// R094: deaths are counted for each cursor: one that stands still before an event that kills the process is
/// noticed though another of its partition gets further each time, and one that has nothing to send is not.
#[tokio::test]
async fn deaths_are_counted_where_a_cursor_stands_still() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (store, _) = fresh.relay().await;
    let change = DefinitionChange {
        put: vec![(destination("b"), Start::Beginning)],
        ..DefinitionChange::default()
    };
    store.apply(&change).await.unwrap();
    events(&fresh, 20).await;
    let mut counts = Vec::new();
    let step = async |moves: &str| {
        end(&fresh).await;
        let granted = acquire(&store, LONG).await.expect("it has expired");
        let from = stands(&store, &granted.lease, moves).await;
        let rows = read(&store, &granted.lease, &from).await;
        if let Some(first) = rows.get(..1) {
            let mut settlement = pass(&granted.lease, &from, first, Passed::Acked);
            settlement.parts[0].destination = id(moves);
            store.settle(&settlement).await.unwrap();
        }
        granted.takeovers
    };
    for moves in ["b", "b", "b", "a", "b", "a", "b"] {
        counts.push(step(moves).await);
    }
    assert_eq!(counts, [1, 2, 3, 4, 2, 2, 2], "the one that stood still longest");
    // All that is there is behind `a`: it stands still, and that is no sign of anything.
    let lease = {
        end(&fresh).await;
        acquire(&store, LONG).await.unwrap().lease
    };
    let from = stands(&store, &lease, "a").await;
    let rows = read(&store, &lease, &from).await;
    store.settle(&pass(&lease, &from, &rows, Passed::Acked)).await.unwrap();
    counts.clear();
    for _ in 0..4 {
        counts.push(step("b").await);
    }
    assert_eq!(counts[1..], [1, 1, 1], "{counts:?}");
    // Where nobody gets further, each death counts, and letting go ends the count.
    counts.clear();
    for _ in 0..3 {
        end(&fresh).await;
        let granted = acquire(&store, LONG).await.unwrap();
        counts.push(granted.takeovers);
    }
    assert!(counts.is_sorted_by(|a, b| a < b), "{counts:?}");
    let (owner, none) = (RelayId::mint(), [0u32; 0]);
    end(&fresh).await;
    let leases = take(&store, &owner).await;
    store.release(&leases).await.unwrap();
    let granted = store.acquire(&request(&owner)).await.unwrap().granted;
    let counted: Vec<u32> =
        granted.iter().map(|granted| granted.takeovers).filter(|count| *count > 0).collect();
    assert_eq!(counted, none);
}

/// F23, R114: what was read in another life of the server is not saved, and nothing of the settlement is
/// written.
#[tokio::test]
async fn a_settlement_of_another_life_is_refused() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (store, lease) = fresh.relay().await;
    events(&fresh, 2).await;
    let from = stands(&store, &lease, "a").await;
    let rows = read(&store, &lease, &from).await;
    let settlement = pass(&lease, &from, &rows, Passed::Acked);
    // As recovery from a crash leaves it, and as another relay plants it anew.
    for crash in ["", "insert into {outbox_life} (token) values (gen_random_uuid())"] {
        fresh.run(&format!("truncate {{outbox_life}}; {crash}")).await;
        let refused = store.settle(&settlement).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    }
    assert_eq!(fresh.number("select count(*) from {outbox_settled}").await, 0);
    // A server says what it refuses before it has let go of the row, and who takes a lease passes over locked ones.
    end(&fresh).await;
    fresh.run("select from {outbox_lease} for update").await;
    let next = acquire(&store, LONG).await.expect("it has expired").lease;
    assert_eq!(stands(&store, &next, "a").await, from, "loaded anew, and nothing was saved");
}

/// R118: a destination that begins now, or at a moment, is owed what was under way at its beginning,
/// also where that has lower numbers than what was there; and one that begins now nothing from before.
#[tokio::test]
async fn what_is_under_way_when_a_destination_begins_is_owed_to_it() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (store, lease) = fresh.relay().await;
    events(&fresh, 1).await;
    let mut under_way = fresh.connect().await;
    let insert = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
        values ('order', '42', 'order.placed', '1')";
    let since = Timestamp::now();
    let tx = under_way.transaction().await.unwrap();
    tx.batch_execute(&fresh.sql(insert)).await.unwrap();
    events(&fresh, 1).await;
    let change = DefinitionChange {
        put: vec![
            (destination("now"), Start::Now),
            (destination("since"), Start::At(since)),
            (destination("all"), Start::Beginning),
        ],
        ..DefinitionChange::default()
    };
    store.apply(&change).await.unwrap();
    tx.commit().await.unwrap();
    events(&fresh, 1).await;
    for (name, owed) in [("now", &[2, 4][..]), ("since", &[2, 3, 4]), ("all", &[1, 2, 3, 4])] {
        let from = stands(&store, &lease, name).await;
        let rows = read(&store, &lease, &from).await;
        let numbers: Vec<u64> = rows.iter().map(|row| row.row.seq).collect();
        assert_eq!(numbers, owed, "{name}");
    }
    let before = "select count(*) from {outbox_status} where destination = 'now' and status = 'before_start'";
    assert_eq!(fresh.number(before).await, 2, "what was there is not owed");
}
