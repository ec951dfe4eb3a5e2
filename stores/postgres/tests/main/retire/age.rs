//! How old an event is: as old as its settlement, whatever it says itself.

use std::time::Duration;

use postrider_core::source::{OutboxSource, RetireRequest};
use postrider_postgres::Layout;

use super::tables::go_past;
use super::{Play, gone};

const HOUR: Duration = Duration::from_secs(3_600);

async fn retire(play: &Play) -> u32 {
    let request = RetireRequest { older_than: 2 * HOUR, ..play.request(1_000) };
    play.store.retire(&request).await.expect("retire").rows
}

/// R101, R103: an event that was scheduled long ago, or lay in a backlog, came with an old time: it stays as long after its
/// settlement as any other, and history begins no later for its sake.
#[tokio::test]
async fn what_says_that_it_is_old_is_as_young_as_its_settlement() {
    for layout in [Layout::Plain, Layout::Partitioned] {
        let Some(play) = Play::new(layout).await else { return };
        play.old(100, "0 days").await;
        play.old(1, "1 day").await;
        play.old(20, "0 days").await;
        assert_eq!(go_past(&play).await.len(), 121);
        assert_eq!(retire(&play).await, 0, "{layout:?}");
        assert_eq!(play.history_start().await, 0, "{layout:?}");
        let ago = "update {outbox_settled} set saved_at = saved_at - interval '3 hours'";
        play.fresh.run(ago).await;
        assert_eq!(retire(&play).await, 121, "{layout:?}");
        assert_eq!(play.history_start().await, 122, "{layout:?}");
    }
}

/// R101: what stays because somebody has not passed it keeps what is behind it, as history begins behind what went last.
#[tokio::test]
async fn nothing_goes_behind_what_stays() {
    let Some(play) = Play::new(Layout::Plain).await else { return };
    for events in [4, 1, 5] {
        play.old(events, "30 days").await;
    }
    play.passed(10).await;
    play.fresh
        .run(
            "update {outbox_cursor} set pending_floors = '{0}',
                pending_xids = array(select xid from {outbox} where seq = 5)
            where destination = 'a'",
        )
        .await;
    assert_eq!(play.retire(100).await, gone(4, false));
    assert_eq!((&*play.seqs().await, play.history_start().await), ("5,6,7,8,9,10", 5));
}

/// R101, R103: a few events a day fill a stretch of the log in months, and each of them renews its time. They go all the
/// same when they were passed for long enough, and no sooner after a rewind.
#[tokio::test]
async fn events_of_a_slow_outbox_go() {
    let Some(play) = Play::new(Layout::Plain).await else { return };
    let later = "update {outbox_renewal} set aging_since = aging_since - interval '3 hours'";
    play.old(10, "0 days").await;
    go_past(&play).await;
    assert_eq!(retire(&play).await, 0, "it is noted");
    play.old(5, "0 days").await;
    go_past(&play).await;
    play.fresh.run(later).await;
    assert_eq!(retire(&play).await, 10, "noted for long enough");
    assert_eq!((&*play.seqs().await, play.history_start().await), ("11,12,13,14,15", 11));
    assert_eq!(retire(&play).await, 0);
    let back = "update {outbox_cursor} set base_xmax = 0, floor = 11, position = 0
        where destination = 'a'";
    play.fresh.run(back).await;
    assert_eq!(retire(&play).await, 0);
    play.fresh.run("update {outbox_cursor} set floor = 15 where destination = 'a'").await;
    play.fresh.run(later).await;
    assert_eq!(retire(&play).await, 1, "what was to be passed once more is young again");
}
