//! Ranges are kept with the settlement that opens, moves, or closes them, under its fence.

use postrider_core::ErrorKind;
use postrider_core::source::OutboxSource;

use super::*;
use crate::support::{LONG, acquire};

/// INV-3: who lost the lease opens, moves, and closes nothing.
#[tokio::test]
async fn a_fenced_owner_changes_no_range() {
    let Some(play) = Play::new().await else { return };
    play.commit(&["hot", "hot"]).await;
    let (begins, stands) = play.pass_with_range(0).await;
    play.fresh.run("update {outbox_renewal} set expires_at = 'epoch'").await;
    let next = acquire(&play.store, LONG).await.expect("it expired");
    for change in [close(&begins), step(&begins, &stands)] {
        let refused = play.change(vec![change]).await.expect_err("it is fenced");
        assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    }
    let play = Play { lease: next.lease, ..play };
    assert_eq!(play.ranges().await, [(KEY.to_owned(), begins.clone())]);
    play.change(vec![step(&begins, &stands)]).await.expect("settle");
    assert_eq!(play.ranges().await, [(KEY.to_owned(), stands)]);
}

/// INV-1: a settlement that arrives after a later one opens no range that was closed, and closes none that was opened anew.
#[tokio::test]
async fn a_settlement_that_comes_late_changes_no_range() {
    let Some(play) = Play::new().await else { return };
    play.commit(&["hot", "hot"]).await;
    let (begins, stands) = play.pass_with_range(0).await;
    let number = "select settled from {outbox_renewal} where partition = 0";
    let opened = play.fresh.number(number).await;
    assert!(opened > 0, "what opens a range is numbered");
    play.change(vec![step(&begins, &stands)]).await.expect("settle");
    play.change(vec![close(&stands)]).await.expect("settle");
    assert_eq!(play.ranges().await, []);
    // As the server would be asked a second time, by an answer that was lost.
    let late = format!(
        "select {{outbox_settle}}(0::smallint, '{}', {}, null, true,
            jsonb_build_array(jsonb_build_object('destination', 'a', 'cursor', null, 'buckets', '[]'::jsonb,
                'waiting', '[]'::jsonb, 'changes', '[]'::jsonb, 'disabled', '[]'::jsonb,
                'ranges', jsonb_build_array(jsonb_build_object('kind', 'open', 'key_hash', 1, 'key', 'k',
                    'version', 1, 'to', '01', 'position', 0, 'base_xmax', 0, 'floor', 0,
                    'pending_xids', '[]'::jsonb, 'pending_floors', '[]'::jsonb, 'target_xip', '[]'::jsonb,
                    'target_floor', 0, 'ground', 0)))), {opened})",
        play.lease.owner, play.lease.token
    );
    let client = play.fresh.connect().await;
    let refused = client.batch_execute(&play.fresh.sql(&late)).await.expect_err("it is too late");
    assert!(refused.as_db_error().is_some_and(|told| told.code().code() == "PRC01"), "{refused}");
    assert_eq!(play.ranges().await, []);
}

/// INV-4: what opens a range is on the disk when it is settled, and is refused in another life of the server.
#[tokio::test]
async fn a_range_of_another_life_is_refused() {
    let Some(play) = Play::new().await else { return };
    play.commit(&["hot", "hot"]).await;
    let (begins, _) = play.pass_with_range(0).await;
    play.fresh.run("update {outbox_life} set token = gen_random_uuid()").await;
    let refused = play.change(vec![close(&begins)]).await.expect_err("another life");
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert_eq!(play.fresh.number("select count(*) from {outbox_range}").await, 1);
}

/// The columns say what the bytes beside them say.
#[tokio::test]
async fn a_range_is_read_by_its_columns_as_by_its_bytes() {
    let Some(play) = Play::new().await else { return };
    let mut open = play.fresh.connect().await;
    let tx = open.transaction().await.unwrap();
    tx.execute("select pg_current_xact_id()", &[]).await.unwrap();
    play.commit(&["hot", "1", "hot", "2", "hot"]).await;
    play.pass_with_range(3).await;
    tx.commit().await.unwrap();
    let passed = "select coalesce(sum(o.seq), 0)::bigint from {outbox} o, {outbox_range} r
        where {outbox_range_passed}(r, o.xid, o.seq)";
    assert_eq!(play.fresh.number(passed).await, 1 + 2 + 3);
    let page = play.store.load(&play.lease, &id("a")).await.expect("load");
    let [range] = &page.ranges.expect("it keeps ranges")[..] else { panic!("one range") };
    assert_eq!((range.key_hash, &*range.key, range.version), (hash(), KEY, 1));
    let rest = play.page(&range.cursor, None, 10).await;
    assert_eq!(rest.rows.first().map(|row| row.row.seq), Some(4));
}
