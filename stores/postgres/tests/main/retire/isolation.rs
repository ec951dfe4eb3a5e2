//! A database or a role whose transactions see one moment alone, unless they say otherwise.

use postrider_core::lease::AcquireRequest;
use postrider_core::operate::Level;
use postrider_core::source::OutboxSource;
use postrider_core::{ErrorKind, Operator, RelayId, Timestamp};
use postrider_postgres::{Layout, Pooler, PostgresStore};

use super::Play;
use crate::support::{LONG, until_one_waits};

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

/// A store on a session with another default, as a role or a database would give it.
fn at_level(play: &Play, level: &str, pooler: Pooler) -> PostgresStore {
    let level = level.replace(' ', "%5C%20");
    let url = play.fresh.url_with(&format!("options=-cdefault_transaction_isolation%3D{level}"));
    let mut options = play.fresh.options();
    options.pooler = pooler;
    PostgresStore::with(&url, options).expect("a store")
}

/// INV-1, R101: retention that waited for somebody who adds a destination sees it, whatever the default of isolation is.
/// Its row in `outbox_meta` was only locked: the server refuses nobody who goes on with an old snapshot.
#[tokio::test]
async fn retention_sees_the_destination_it_waited_for() {
    for (layout, level) in [Layout::Partitioned, Layout::Plain]
        .into_iter()
        .flat_map(|l| LEVELS.map(|level| (l, level)))
    {
        let Some(play) = Play::new(layout).await else { return };
        play.old(5_000, "30 days").await;
        play.passed(5_000).await;
        for function in ["outbox_retire_to", "outbox_retire_rows"] {
            let patient = format!("alter function {{{function}}} set lock_timeout = '60s'");
            play.fresh.run(&patient).await;
        }
        let adder = play.fresh.connect().await;
        let adds = "begin; select {outbox_history_start}();
            insert into {outbox_cursor} (destination, partition, base, position, base_xmax, floor, ground)
            values ('b', 0, '', 0, 0, 0, 0)";
        adder.batch_execute(&play.fresh.sql(adds)).await.expect("it adds");
        let (store, request) = (at_level(&play, level, Pooler::Auto), play.request(100));
        let retires = tokio::spawn(async move { store.retire(&request).await });
        until_one_waits(&play.fresh).await;
        adder.batch_execute("commit").await.expect("commit");
        let retired = retires.await.expect("an end").expect("retire").rows;
        assert_eq!(retired, 0, "{layout:?}, {level}");
        let kept = play.fresh.number("select count(*) from {outbox}").await;
        assert_eq!((kept, play.history_start().await), (5_000, 0), "{layout:?}, {level}");
        play.fresh.run("delete from {outbox_cursor} where destination = 'b'").await;
        assert!(play.retire(100).await.rows > 0, "the control");
    }
}

/// INV-1: where the store cannot set the level, it is refused before anything is published, and the doctor says why.
#[tokio::test]
async fn behind_a_pooler_another_default_is_refused() {
    let Some(play) = Play::new(Layout::Plain).await else { return };
    play.old(10, "30 days").await;
    play.passed(10).await;
    for (level, refused) in LEVELS.into_iter().zip([false, true, true]) {
        let store = at_level(&play, level, Pooler::Transaction);
        let request = AcquireRequest {
            owner: RelayId::mint(),
            lease_duration: LONG,
            wanted: 1,
            free_for: std::time::Duration::ZERO,
            presence: None,
            current: true,
            dead: None,
        };
        let kind = Some(ErrorKind::Config).filter(|_| refused);
        let acquired = store.acquire(&request).await.err();
        assert_eq!(acquired.as_ref().map(postrider_core::Error::kind), kind, "{acquired:?}");
        let text = acquired.map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(text.contains("alter role"), refused, "{text}");
        let retired = store.retire(&play.request(1)).await.err();
        assert_eq!(retired.map(|error| error.kind()), kind, "{level}");
        let found = store.doctor(Timestamp::now()).await.expect("it looks");
        let found = found.iter().find(|finding| finding.subject == "isolation").expect("said");
        assert_eq!(found.level == Level::Critical, refused, "{found:?}");
        // A transaction of the store's own has its level wherever it is.
        store.register(&[crate::support::destination("a")]).await.expect("registers");
    }
}

/// Each function that waits for a lock and then looks refuses a transaction that would see nothing new.
#[tokio::test]
async fn whoever_looks_after_a_lock_refuses_one_moment_alone() {
    let Some(play) = Play::new(Layout::Plain).await else { return };
    let client = play.fresh.connect().await;
    for call in [
        "{outbox_fence}(0::smallint, 'r', 1)",
        "{outbox_settle}(0::smallint, 'r', 1, null, true, '[]')",
        "{outbox_acquire}('r', 1, 1, 0, null, null, null, true, null, null, null)",
        "{outbox_carry_out}(0::smallint, 'r', 1, '[]', 1)",
        "{outbox_rewind}(0::smallint, 'r', 1, 1, 'a', 1, '', 0, '', 0, '{}', '{}', 0)",
        "{outbox_rename}('a', 'b', '', '', 'anna', '')",
        "{outbox_retire_to}(0::smallint, 'r', 1, 0)",
        "{outbox_empty}(0::smallint, 'r', 1, 0)",
        "{outbox_retire_rows}(0::smallint, 'r', 1, 0, '{}')",
        "{outbox_admit}(0::smallint, 'r', 1, 1)",
        "{inbox_claim}('/s', gen_random_uuid(), 'h', 't', sha256('x'), 1, 0)",
    ] {
        let call =
            play.fresh.sql(&format!("begin isolation level repeatable read; select * from {call}"));
        let refused = client.batch_execute(&call).await.expect_err("one moment alone");
        let state = refused.code().map(|state| state.code().to_owned());
        assert_eq!(state.as_deref(), Some("PRL01"), "{call}: {refused}");
        client.batch_execute("rollback").await.expect("rolled back");
    }
}
