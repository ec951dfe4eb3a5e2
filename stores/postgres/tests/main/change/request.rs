//! Requests are written down with exactly what was counted, and with their row of the audit table.

use postrider_core::operate::{Note, Operator, RowKey, Submission, Verb};
use postrider_core::{Code, ErrorKind, Start};

use crate::operator::{Act, Play, everything, joined, later, note, of_type, page};
use crate::support::{id, until_one_waits};

fn rows(destination: &str, numbers: &[u64]) -> Vec<RowKey> {
    numbers.iter().map(|seq| RowKey { destination: id(destination), seq: *seq }).collect()
}

async fn submit(play: &Play, verb: Verb) -> postrider_core::Result<u64> {
    Ok(play.store.submit(&Submission { verb, note: note() }).await?.0)
}

async fn refused(play: &Play, verb: Verb) -> ErrorKind {
    submit(play, verb).await.expect_err("a refusal").kind()
}

async fn dead_letters() -> Option<Play> {
    let play = Play::begin(&[everything("a"), everything("b")]).await?;
    play.commit(&(0..6).map(|n| of_type("order.placed", n)).collect::<Vec<_>>()).await;
    play.settle("a", &[Act::Dead, Act::Dead, Act::Ack, Act::Ack]).await;
    play.settle("b", &[Act::Dead]).await;
    Some(play)
}

/// INV-1: retention looks for requests, and then takes what none is about. So one that asks for events is written before it
/// looks, or after it is through; others need not wait for it.
#[tokio::test]
async fn a_requeue_and_retention_do_not_pass_each_other() {
    let Some(play) = dead_letters().await else { return };
    let mut retention = play.fresh.connect().await;
    let looking = retention.transaction().await.unwrap();
    let look = "select m.value from {outbox_meta} m where m.key = 'history_start' for update";
    looking.query(&play.fresh.sql(look), &[]).await.unwrap();
    let asking = submit(&play, Verb::Requeue(rows("a", &[3])));
    tokio::pin!(asking);
    tokio::select! {
        asked = &mut asking => panic!("it did not wait: {asked:?}"),
        () = until_one_waits(&play.fresh) => {}
    }
    submit(&play, Verb::Redrive(rows("a", &[1]))).await.unwrap();
    looking.rollback().await.unwrap();
    asking.await.unwrap();
}

#[tokio::test]
async fn a_request_has_each_row_once_and_is_audited() {
    let Some(play) = dead_letters().await else { return };
    let mut asked = rows("a", &[2, 1, 2]);
    asked.extend(rows("b", &[1]));
    let first = submit(&play, Verb::Redrive(asked)).await.unwrap();
    let second = submit(&play, Verb::Requeue(rows("a", &[3]))).await.unwrap();
    assert!(second > first);
    let state = play.store.request(postrider_core::operate::RequestId(first)).await.unwrap();
    assert_eq!((state.verb.as_str(), state.total, state.done, state.skipped), ("redrive", 3, 0, 0));
    assert_eq!((state.who.as_str(), state.why.as_str()), ("anna@db1", "a test"));
    assert!(!state.finished && state.relay.is_none());
    let open: Vec<u64> =
        play.store.open_requests().await.unwrap().iter().map(|state| state.id.0).collect();
    assert_eq!(open, [first, second]);
    assert_eq!(play.store.overview().await.unwrap().requests, 2);
    let written =
        "select count(*) from {outbox_request_row} where partition = 0 and outcome is null";
    assert_eq!(play.fresh.number(written).await, 4);
    let named = "select count(*) from {outbox_request} where destination is null";
    assert_eq!(play.fresh.number(named).await, 1, "a request for several destinations names none");
    let audit = play.store.audit(&page(10, None)).await.unwrap().rows;
    let told: Vec<_> = audit.iter().map(|row| (row.what.as_str(), row.subject.as_str())).collect();
    assert_eq!(
        told,
        [
            ("outbox requeue", "request 2: 1 rows (a 1)"),
            ("dead redrive", "request 1: 3 rows (a 2, b 1)")
        ]
    );
    let missing = play.store.request(postrider_core::operate::RequestId(99)).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn what_names_nothing_is_refused_and_leaves_nothing() {
    let Some(play) = dead_letters().await else { return };
    let many = (0..=Submission::ROWS_MAX as u64).collect::<Vec<_>>();
    let enable = |destination: &str, topic: &str| Verb::Enable {
        destination: id(destination),
        topic: topic.to_owned(),
    };
    let rewind = |destination: &str, to| Verb::Rewind { destination: id(destination), to };
    assert_eq!(refused(&play, Verb::Redrive(Vec::new())).await, ErrorKind::Invalid);
    assert_eq!(refused(&play, Verb::Discard(rows("a", &many))).await, ErrorKind::Invalid);
    assert_eq!(refused(&play, Verb::Discard(rows("nobody", &[1]))).await, ErrorKind::NotFound);
    assert_eq!(refused(&play, enable("a", "gone")).await, ErrorKind::NotFound);
    assert_eq!(refused(&play, enable("nobody", "gone")).await, ErrorKind::NotFound);
    assert_eq!(refused(&play, rewind("a", Start::Now)).await, ErrorKind::Invalid);
    assert_eq!(refused(&play, rewind("nobody", Start::Beginning)).await, ErrorKind::NotFound);
    assert_eq!(refused(&play, rewind("unrouted", Start::Beginning)).await, ErrorKind::Invalid);
    let late = rewind("a", Start::At(later()));
    assert_eq!(refused(&play, late).await, ErrorKind::NotFound);
    let unsigned = Submission {
        verb: Verb::Redrive(rows("a", &[1])),
        note: Note { who: String::new(), why: String::new() },
    };
    assert_eq!(play.store.submit(&unsigned).await.unwrap_err().kind(), ErrorKind::Invalid);
    for table in ["{outbox_request}", "{outbox_request_row}", "{outbox_audit}"] {
        assert_eq!(play.fresh.number(&format!("select count(*) from {table}")).await, 0, "{table}");
    }
}

#[tokio::test]
async fn an_endpoint_is_enabled_by_a_request_for_each_partition() {
    let Some(play) = dead_letters().await else { return };
    play.fresh
        .run(
            "insert into {outbox_endpoint} (destination, topic, disabled_at)
            values ('a', 'gone', now())",
        )
        .await;
    let verb = Verb::Enable { destination: id("a"), topic: "gone".to_owned() };
    let request = submit(&play, verb).await.unwrap();
    let parts = "select count(*) from {outbox_request_row} where destination = 'a' and seq = 0";
    assert_eq!((request, play.fresh.number(parts).await), (1, 1));
}

/// A rewind is written with the number it goes back to, and refused where retention has deleted.
#[tokio::test]
async fn a_rewind_goes_back_as_far_as_the_history_is_kept() {
    let Some(play) = dead_letters().await else { return };
    play.fresh
        .run(
            "set postrider.repair = 'on';
            update {outbox} set created_at = ('2026-01-0' || seq || 'T00:00:00Z')::timestamptz",
        )
        .await;
    let to = |text: &str| Verb::Rewind {
        destination: id("a"),
        to: text.parse().map_or(Start::Beginning, Start::At),
    };
    let target = async |verb: Verb| {
        let request = submit(&play, verb).await.expect("a request");
        let of = format!("select target from {{outbox_request}} where id = {request}");
        play.fresh.number(&of).await
    };
    assert_eq!(target(to("beginning")).await, 1);
    assert_eq!(target(to("2026-01-03T00:00:00Z")).await, 3);
    assert_eq!(target(to("2020-01-01T00:00:00Z")).await, 1);
    assert_eq!(refused(&play, to("2026-01-05T00:00:00Z")).await, ErrorKind::Invalid);
    play.fresh
        .run(
            "delete from {outbox} where seq < 3;
            update {outbox_meta} set value = '3' where key = 'history_start'",
        )
        .await;
    assert_eq!(target(to("beginning")).await, 3);
    let error = submit(&play, to("2026-01-02T00:00:00Z")).await.unwrap_err();
    assert_eq!(error.operator_code(), Some(Code::HistoryGone));
    assert!(error.to_string().contains("2026-01-03T00:00:00Z"), "{error}");
}

/// R093: the rows of a request are split by the partition that each is in, also of what nobody waits for.
#[tokio::test]
async fn rows_are_split_by_partition() {
    let Some(play) = Play::wide(8, &[everything("a")]).await else { return };
    play.commit(&(0..100).map(|n| of_type("order.placed", n)).collect::<Vec<_>>()).await;
    play.settle_all("a", &[Act::Ack, Act::Dead]).await;
    let all: Vec<u64> = (1..=100).collect();
    submit(&play, Verb::Requeue(rows("a", &all))).await.unwrap();
    submit(&play, Verb::Redrive(rows("a", &all))).await.unwrap();
    let wrong = "select count(*) from {outbox_request_row} r join {outbox} o using (seq)
        where r.partition <> o.partition";
    let there =
        "select count(*) from {outbox_request_row} r join {outbox} o using (seq, partition)";
    assert_eq!(play.fresh.number(wrong).await, 0);
    assert_eq!(play.fresh.number(there).await, 200);
    let parts = "select count(distinct partition) from {outbox_request_row}";
    assert!(play.fresh.number(parts).await > 1);
}

#[tokio::test]
async fn the_audit_is_paged_newest_first() {
    let Some(play) = dead_letters().await else { return };
    for seq in 1..=7 {
        submit(&play, Verb::Requeue(rows("a", &[seq]))).await.unwrap();
    }
    let whole = play.store.audit(&page(100, None)).await.unwrap();
    assert_eq!((whole.rows.len(), whole.next), (7, None));
    assert!(whole.rows.is_sorted_by(|a, b| a.number > b.number));
    for limit in 1..=8 {
        let by_page = joined(limit, async |p| play.store.audit(p).await).await;
        assert_eq!(by_page, whole.rows);
    }
}
