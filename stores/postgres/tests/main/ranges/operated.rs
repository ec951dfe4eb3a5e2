//! What operators do about ranges: they are told of them, and erase what a range stands for.

use postrider_core::operate::{Erasure, Finding, Level, Operator};
use postrider_core::source::{DueRequest, OutboxSource};
use postrider_core::waiting::{NewWaiting, Placement, Reason, WaitingChange};
use postrider_core::{Code, Payload, Timestamp};

use super::*;
use crate::operator::note;

async fn finding(play: &Play, subject: &str) -> Finding {
    let findings = play.store.doctor(Timestamp::now()).await.expect("an examination");
    findings.into_iter().find(|finding| finding.subject == subject).expect("the finding")
}

/// The doctor names the keys of which so much waits, since when, and that nothing behind is deleted; what would act on a
/// terminal is escaped.
#[tokio::test]
async fn the_doctor_tells_of_ranges() {
    let Some(play) = Play::new().await else { return };
    play.commit(&["hot", "hot"]).await;
    assert_eq!(finding(&play, "ranges").await.level, Level::Good);
    play.pass_with_range(0).await;
    play.fresh
        .run(
            "insert into {outbox_range} select destination, partition, 8, e'\\x1b[2J', version, base, position,
                base_xmax, floor, pending_xids, pending_floors, target_xmin, target_xmax, target_xip,
                target_floor, ground, opened_at from {outbox_range};
            update {outbox_range} set opened_at = '2023-11-14T22:13:20Z' where key_hash <> 8",
        )
        .await;
    let found = finding(&play, "ranges").await;
    assert_eq!((found.level, found.code), (Level::Warning, Some(Code::StoreGrows)));
    for part in [
        "2 keys",
        "since 2023-11-14T22:13:20",
        "nothing behind is deleted",
        "`order/hot` of destination a, `\\u{1b}[2J`",
    ] {
        assert!(found.message.contains(part), "{part}: {}", found.message);
    }
    assert!(found.advice.expect("advice").contains("dead ls --store"));
    assert_eq!(finding(&play, "cursors").await.level, Level::Good);
}

/// Retention goes by a range's columns, its owner by its bytes: the doctor says where they differ.
#[tokio::test]
async fn a_range_that_was_changed_by_hand_is_told() {
    for damage in ["ground = ground + 1", "base_xmax = 5", "base = 'x'"] {
        let Some(play) = Play::new().await else { return };
        play.commit(&["hot", "hot"]).await;
        play.pass_with_range(1).await;
        assert_eq!(finding(&play, "cursors").await.level, Level::Good);
        play.fresh.run(&format!("update {{outbox_range}} set {damage}")).await;
        let found = finding(&play, "cursors").await;
        assert_eq!((found.level, found.code), (Level::Critical, Some(Code::Corrupt)), "{damage}");
        assert!(found.message.contains("a in partition 0 for the key `order/hot`"), "{found:?}");
    }
}

/// Copies what a page has of the key into waiting, as the owner of a range does, in the write that moves or ends the range.
async fn copy(play: &Play, page: &Page, change: RangeChange) {
    let mut part = SettlementPart::new(id("a"));
    let of_key = page.rows.iter().filter(|row| row.key_hash == hash());
    part.waiting = of_key
        .map(|row| NewWaiting {
            row: row.row,
            key_hash: row.key_hash,
            event: None,
            placement: Placement::Behind(Reason::Behind),
        })
        .collect();
    part.ranges = vec![change];
    play.settle(part).await.expect("settle");
}

async fn due(play: &Play) -> Vec<(u64, Payload)> {
    let request = DueRequest {
        lease: play.lease.clone(),
        destination: id("a"),
        except: Vec::new(),
        rows_max: 100,
        bytes_max: 1 << 30,
    };
    let rows = play.store.due(&request).await.expect("due").rows;
    rows.iter().map(|row| (row.row.seq, row.event.payload.clone())).collect()
}

/// An erasure reaches what only a range stands for, also what its owner has read and not copied yet. Nothing of it is sent:
/// the copies have no payload, are passed as erased, and the range ends as it would have.
#[tokio::test]
async fn what_a_range_stands_for_is_erased() {
    let Some(play) = Play::new().await else { return };
    play.commit(&["hot", "1", "hot", "hot"]).await;
    let (begins, stands) = play.pass_with_range(0).await;
    let first = play.page(&begins, Some(&stands), 2).await;
    let event = first.rows[0].event.as_ref().expect("an event");
    assert_ne!(event.payload, Payload::Erased, "its owner has read it");
    let reach = play.store.erasable(KEY).await.expect("erasable");
    assert_eq!(reach, Erasure { outbox: 3, ..Erasure::default() });
    assert_eq!(play.store.erase(KEY, &note()).await.expect("erase"), reach);
    copy(&play, &first, step(&begins, &first.end)).await;
    let last = play.page(&first.end, Some(&stands), 10).await;
    assert!(!last.more);
    copy(&play, &last, close(&first.end)).await;
    assert_eq!(play.ranges().await, []);
    let kept =
        "select count(*) from {outbox_waiting} where erased_at is null or payload is not null";
    assert_eq!(play.fresh.number(kept).await, 0);
    assert_eq!(due(&play).await, [1, 3, 4].map(|seq| (seq, Payload::Erased)));
    let rows = first.rows.iter().chain(&last.rows).filter(|row| row.key_hash == hash());
    let mut part = SettlementPart::new(id("a"));
    part.changes = rows.map(|row| WaitingChange::Erased(row.row)).collect();
    play.settle(part).await.expect("settle");
    assert_eq!(play.store.counts(&id("a")).await.expect("counts").total(), 0);
    assert_eq!(play.store.erasable(KEY).await.expect("erasable"), Erasure::default());
}
