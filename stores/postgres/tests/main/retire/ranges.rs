//! What a range stands for is not retired, though every destination's cursor has passed it.

use std::time::Duration;

use postrider_core::source::{OutboxSource, RetireRequest};
use postrider_postgres::Layout;

use super::{Play, gone};

/// A destination has a range that has passed everything up to a number.
async fn range(play: &Play, ground: i64) {
    let range = format!(
        "insert into {{outbox_range}} (destination, partition, key_hash, key, version, base, position,
            base_xmax, floor, ground)
        values ('a', 0, 1, 'order/1', 1, '', 0, 0, {ground}, {ground})"
    );
    play.fresh.run(&range).await;
}

async fn moves(play: &Play, ground: i64) {
    let moves = format!("update {{outbox_range}} set floor = {ground}, ground = {ground}");
    play.fresh.run(&moves).await;
}

/// Six old events that every cursor has passed, and a range that has passed two.
async fn with_range() -> Option<Play> {
    let play = Play::new(Layout::Plain).await?;
    play.old(6, "30 days").await;
    play.passed(6).await;
    range(&play, 2).await;
    Some(play)
}

/// INV-1: rows go as far as a range has passed them, and go on when it moves on.
#[tokio::test]
async fn rows_wait_for_a_range() {
    let Some(play) = with_range().await else { return };
    assert_eq!(play.retire(100).await, gone(2, false));
    assert_eq!((&*play.seqs().await, play.history_start().await), ("3,4,5,6", 3));
    moves(&play, 4).await;
    assert_eq!(play.retire(100).await, gone(2, false));
    play.fresh.run("delete from {outbox_range}").await;
    assert_eq!(play.retire(100).await, gone(2, false), "the control");
}

/// INV-1: an archive is handed nothing that a range stands for.
#[tokio::test]
async fn an_archive_waits_for_a_range() {
    let Some(play) = with_range().await else { return };
    assert_eq!(play.retirable(100).await.len(), 2);
    play.fresh.run("delete from {outbox_range}").await;
    assert_eq!(play.retirable(100).await.len(), 6, "the control");
}

/// INV-1: what was archived before a range began stays until it has passed: it is asked again when the rows go.
#[tokio::test]
async fn what_was_archived_waits_for_a_range() {
    let Some(play) = with_range().await else { return };
    play.fresh.run("update {outbox_range} set floor = 6, ground = 6").await;
    let request = RetireRequest { only: Some(play.retirable(100).await), ..play.request(100) };
    moves(&play, 2).await;
    assert_eq!(play.store.retire(&request).await.unwrap(), gone(2, false));
    assert_eq!(&*play.seqs().await, "3,4,5,6");
}

/// INV-1: what a range has not passed by a transaction that was open lies below its floor, and stays.
#[tokio::test]
async fn rows_of_a_transaction_that_was_open_wait_for_a_range() {
    let Some(play) = with_range().await else { return };
    let open = "update {outbox_range} set floor = 6, ground = 0, pending_floors = '{0}',
        pending_xids = array(select distinct xid from {outbox})";
    play.fresh.run(open).await;
    assert_eq!(play.retire(100).await, gone(0, false));
    play.fresh.run("update {outbox_range} set pending_floors = '{}', pending_xids = '{}'").await;
    assert_eq!(play.retire(100).await, gone(6, false), "the control");
}

/// R101: what a range passed a moment ago is as young as what a cursor did.
#[tokio::test]
async fn what_a_range_has_passed_is_young() {
    let Some(play) = with_range().await else { return };
    let age = async || {
        let request = RetireRequest { older_than: Duration::from_secs(7_200), ..play.request(1) };
        play.store.retirable(&request).await.expect("it looks");
        play.fresh.run("update {outbox_renewal} set aging_since = 'epoch'").await;
    };
    for _ in 0..3 {
        age().await;
    }
    let aged = "select aged from {outbox_renewal}";
    assert_eq!(play.fresh.number(aged).await, 2);
    play.fresh.run("delete from {outbox_range}").await;
    for _ in 0..3 {
        age().await;
    }
    assert_eq!(play.fresh.number(aged).await, 6, "the control");
}

/// INV-1: one range that has not passed all of it for good keeps a table.
#[tokio::test]
async fn a_table_waits_for_a_range() {
    let Some(play) = Play::new(Layout::Partitioned).await else { return };
    play.old_in_tables(9_000, "30 days").await;
    play.passed(9_000).await;
    range(&play, 4_094).await;
    let bound = "select {outbox_retire_to}(partition, owner, token, 1000000) from {outbox_lease}";
    assert_eq!(play.fresh.number(bound).await, 0);
    moves(&play, 4_095).await;
    assert_eq!(play.fresh.number(bound).await, 4_096);
    while play.retire(10_000).await.more {}
    let kept = "select min(seq) from {outbox}";
    assert_eq!(play.fresh.number(kept).await, 4_096);
    let kept = "select count(*) from {outbox} where seq >= 4096";
    assert_eq!(play.fresh.number(kept).await, 9_000 - 4_095);
}

/// INV-1: so does the default table, and no row of it goes that a range stands for.
#[tokio::test]
async fn the_default_table_waits_for_a_range() {
    let Some(play) = Play::new(Layout::Partitioned).await else { return };
    play.old(13_000, "30 days").await;
    assert_eq!(play.fresh.number("select {outbox_ahead}()::bigint").await, 2);
    play.old(15_000, "30 days").await;
    play.passed(28_000).await;
    // The last three tables' rows stand in the default one: 12,288 and above, up to where tables were made again.
    range(&play, 12_500).await;
    while play.retire(10_000).await.more {}
    assert_eq!(play.fresh.number("select min(seq) from {outbox}").await, 12_501);
    assert_eq!(play.fresh.number("select count(*) from {outbox}").await, 28_000 - 12_500);
    play.fresh.run("delete from {outbox_range}").await;
    while play.retire(10_000).await.more {}
    let left = play.fresh.number("select count(*) from {outbox}").await;
    assert!(left < 4_096, "the control: {left}");
}
