//! Cursors that begin anew go back to before their ranges, which end with that: nothing is lost that one stood for.

use std::collections::BTreeSet;

use postrider_core::operate::{Operator, Submission, Verb};
use postrider_core::source::{FetchRequest, OutboxSource};
use postrider_core::waiting::{
    Attempted, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart,
};
use postrider_core::{EventId, Lease, NewEvent, Start, Timestamp};

use super::{KEY, hash, open};
use crate::change::floors::at_rest;
use crate::operator::{Act, Play, everything, note, of_type};
use crate::support::{LONG, id};

/// What a range stands for, and at or below which number it stands for nothing.
struct Stood {
    ids: BTreeSet<EventId>,
    ground: i64,
}

/// A store whose destination `a` has copied two events of the key, and has a range for the others. It has passed all of
/// them for good, and so many events of other keys, which came first.
async fn with_range(partitions: u16, before: u32) -> Option<(Play, Stood)> {
    let play = Play::wide(partitions, &[everything("a"), everything("b")]).await?;
    let fill = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
        select 'order', n % 20, 'order.placed', '{}' from generate_series(1, $N) n";
    let hot = |n: u32| NewEvent::new("order", "hot", "order.placed").json(&n).expect("JSON");
    for n in 0..12 {
        play.commit(&[hot(n), of_type("order.placed", n), of_type("order.placed", n + 1)]).await;
    }
    if before > 0 {
        play.fresh.run(&fill.replace("$N", &before.to_string())).await;
    }
    for destination in ["b", "unrouted"] {
        play.settle_all(destination, &[Act::Ack]).await;
    }
    let mut ids = BTreeSet::new();
    for lease in &play.leases {
        ids.extend(pass_with_range(&play, lease).await);
    }
    assert_eq!((ids.len(), ranges(&play).await), (10, 1), "the control");
    at_rest(&play, &["a"], i64::from(before) + 36).await;
    let ground = play.fresh.number("select ground from {outbox_range}").await;
    Some((play, Stood { ids, ground }))
}

/// `a` passes all that is in a partition; what a range stands for now.
async fn pass_with_range(play: &Play, lease: &Lease) -> BTreeSet<EventId> {
    let (mut copied, mut stands_for) = (0, BTreeSet::new());
    loop {
        let from = play.store.load(lease, &id("a")).await.expect("load").cursor;
        let request = FetchRequest {
            lease: lease.clone(),
            destinations: vec![id("a")],
            after: from.clone(),
            until: None,
            rows_max: 100_000,
            bytes_max: 1 << 30,
        };
        let page = play.store.fetch(&request).await.expect("fetch");
        if page.rows.is_empty() && !page.more && page.end == from {
            return stands_for;
        }
        let mut part = SettlementPart::new(id("a"));
        part.cursor = Some((from.clone(), page.end));
        let mut before = from;
        for row in page.rows {
            let is_hot = row.key_hash == hash();
            part.passed.push((row.row, if is_hot { Passed::Waiting } else { Passed::Acked }));
            if is_hot && copied < 2 {
                let placement = placement(copied);
                let (row, key_hash) = (row.row, row.key_hash);
                part.waiting.push(NewWaiting { row, key_hash, event: None, placement });
                copied += 1;
            } else if is_hot {
                if stands_for.is_empty() {
                    part.ranges.push(open(&before));
                }
                stands_for.insert(row.row.id);
            }
            before = row.cursor;
        }
        let settlement = Settlement { lease: lease.clone(), parts: vec![part] };
        play.store.settle(&settlement).await.expect("settle");
    }
}

fn placement(nth: u32) -> Placement {
    let attempted = Attempted { attempts: 3, reason: Reason::Failed, detail: String::new() };
    match nth {
        0 => Placement::Retry { delay: LONG, attempted },
        _ => Placement::Behind(Reason::Behind),
    }
}

async fn ranges(play: &Play) -> i64 {
    play.fresh.number("select count(*) from {outbox_range}").await
}

async fn let_go(play: &Play) {
    play.store.release(&play.leases).await.expect("release");
}

/// Everything that the range stood for comes, and is counted once; what was copied is there, and the range is not. Returns
/// how many events came.
async fn comes_again(play: &mut Play, stood: &Stood) -> usize {
    assert_eq!(ranges(play).await, 0);
    let copied = format!("select count(*) from {{outbox_waiting}} where key = '{KEY}'");
    assert_eq!(play.fresh.number(&copied).await, 2);
    play.store.open().await.expect("open");
    play.take_leases().await;
    let rows = play.fetch_all("a").await;
    let found: BTreeSet<EventId> = rows.iter().map(|row| row.row.id).collect();
    let lost = stood.ids.difference(&found).count();
    assert_eq!((lost, found.len()), (0, rows.len()), "lost, and none twice");
    play.settle_all("a", &[Act::Ack]).await;
    assert_eq!(play.store.recount(&id("a")).await.unwrap().differences, []);
    rows.len()
}

/// INV-1: a repair of the sequence has every destination begin behind its ranges.
#[tokio::test]
async fn a_repair_of_the_sequence_goes_back_before_ranges() {
    let Some((mut play, stood)) = with_range(1, 0).await else { return };
    let_go(&play).await;
    play.fresh.run("select setval({text:outbox_seq}, 1, false)").await;
    let repaired = play.store.repair_numbers(&note()).await.expect("repair");
    assert!(repaired.after > repaired.before && repaired.cursors == 3, "{repaired:?}");
    comes_again(&mut play, &stood).await;
}

/// INV-1, F13: a copy that is adopted, which is what a restored dump is too, begins behind its ranges: where the log is
/// right, at the first that one of them stands for, and nothing below comes again.
#[tokio::test]
async fn an_adopted_copy_goes_back_before_ranges() {
    let Some((mut play, stood)) = with_range(2, 0).await else { return };
    let above = format!(
        "select count(*) from {{outbox}} where seq > {} and partition = {{outbox_partition_of}}('{KEY}')",
        stood.ground
    );
    let_go(&play).await;
    let due = play.fresh.number(&above).await;
    play.fresh
        .run("update {outbox_meta} set value = '1' where key in ('cluster', 'database')")
        .await;
    play.store.adopt(&note()).await.expect("adopt");
    let other = "select count(*) from {outbox} o join {outbox_cursor} c using (partition)
        where c.destination = 'a' and not {outbox_passed}(c, o.xid, o.seq)
            and o.partition <> {outbox_partition_of}('order/hot')";
    let other = play.fresh.number(other).await;
    assert_eq!(comes_again(&mut play, &stood).await as i64, due + other);
}

/// INV-1: where nobody knows what was lost, it begins with the bucket in which the first stands.
#[tokio::test]
async fn a_bucket_that_is_not_counted_comes_again_with_what_ranges_stood_for() {
    let Some((mut play, stood)) = with_range(1, 5_000).await else { return };
    let_go(&play).await;
    play.fresh
        .run(
            "update {outbox_settled} set count = count - 1, acked = acked - 1
                where destination = 'a' and bucket = 0;
            update {outbox_meta} set value = '1' where key in ('cluster', 'database')",
        )
        .await;
    play.store.adopt(&note()).await.expect("adopt");
    let all = play.fresh.number("select count(*) from {outbox}").await;
    assert_eq!(comes_again(&mut play, &stood).await as i64, all);
}

/// INV-1: transactions of another server's count lie beyond this one's: what a range stands for of them is found.
#[tokio::test]
async fn a_restored_dump_with_ranges_loses_nothing() {
    let Some((mut play, stood)) = with_range(2, 0).await else { return };
    let_go(&play).await;
    play.fresh
        .run(
            "set postrider.repair = 'on';
            update {outbox} set xid = xid + 1000000000;
            update {outbox_range} set base_xmax = base_xmax + 1000000000;
            update {outbox_cursor} set base_xmax = base_xmax + 1000000000;
            update {outbox_meta} set value = '1' where key in ('cluster', 'database')",
        )
        .await;
    play.store.adopt(&note()).await.expect("adopt");
    comes_again(&mut play, &stood).await;
    play.commit(&[of_type("order.placed", 1)]).await;
    assert_eq!(play.fetch_all("a").await.len(), 1);
}

/// INV-1: keys that another server sends elsewhere take along what ranges stood for.
#[tokio::test]
async fn a_repair_of_partitions_goes_back_before_ranges() {
    let Some((mut play, stood)) = with_range(4, 5_000).await else { return };
    let_go(&play).await;
    let mut shift = "set postrider.repair = 'on';
        update {outbox} set partition = (partition + 1) % 4;"
        .to_owned();
    for table in ["settled", "cursor", "range", "waiting"] {
        shift += &format!(
            "update {{outbox_{table}}} set partition = 10 + (partition + 1) % 4;
            update {{outbox_{table}}} set partition = partition - 10;"
        );
    }
    play.fresh.run(&(shift + "update {outbox_meta} set value = '1' where key = 'hash'")).await;
    assert_eq!(play.store.recount(&id("a")).await.unwrap().differences, [], "the control");
    play.store.repair_partitions(&note()).await.expect("repair");
    let wrong =
        "select count(*) from {outbox_waiting} where partition <> {outbox_partition_of}(key)";
    assert_eq!(play.fresh.number(wrong).await, 0);
    comes_again(&mut play, &stood).await;
}

/// INV-1: a rewind to a moment goes back further than that, to before what a range stands for.
#[tokio::test]
async fn a_rewind_goes_back_before_ranges_far_behind_its_target() {
    let Some((mut play, stood)) = with_range(1, 5_000).await else { return };
    let moment = "select (1000000 * extract(epoch from created_at))::bigint from {outbox}
        order by seq desc limit 1";
    let moment = Timestamp::from_micros(play.fresh.number(moment).await);
    let verb = Verb::Rewind { destination: id("a"), to: Start::At(moment) };
    play.store.submit(&Submission { verb, note: note() }).await.expect("submit");
    play.carry_out().await;
    let_go(&play).await;
    comes_again(&mut play, &stood).await;
}

/// A renamed destination has its ranges, and copies what they stand for.
#[tokio::test]
async fn a_renamed_destination_keeps_its_ranges() {
    let Some((mut play, stood)) = with_range(1, 0).await else { return };
    play.store.rename(&id("a"), &id("c"), &note()).await.expect("rename");
    let_go(&play).await;
    play.take_leases().await;
    let loaded = play.store.load(&play.lease, &id("c")).await.expect("load");
    let [range] = &loaded.ranges.expect("it keeps ranges")[..] else { panic!("one range") };
    let request = FetchRequest {
        lease: play.lease.clone(),
        destinations: vec![id("c")],
        after: range.cursor.clone(),
        until: Some(loaded.cursor),
        rows_max: 1_000,
        bytes_max: 1 << 20,
    };
    let page = play.store.fetch(&request).await.expect("fetch");
    let found: BTreeSet<EventId> = page.rows.iter().map(|row| row.row.id).collect();
    assert!(stood.ids.is_subset(&found), "{}", page.rows.len());
}

/// What a range stands for is not delivered: whoever is about to take the tables back is told.
#[tokio::test]
async fn what_a_range_stands_for_would_go_with_the_tables() {
    let Some((play, stood)) = with_range(2, 0).await else { return };
    for destination in ["b", "unrouted"] {
        play.settle_all(destination, &[Act::Ack]).await;
    }
    let held = postrider_postgres::holdings(&play.fresh.url, &play.fresh.names).await.unwrap();
    assert_eq!((held.undelivered, held.waiting), (stood.ids.len() as u64, 2));
}
