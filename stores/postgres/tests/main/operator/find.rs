//! Events by their id alone, for which there is no index.

use postrider_core::operate::Operator;
use postrider_core::{ErrorKind, EventId, NewEvent};

use super::{Play, all, everything, of_type, page};

/// A store with some ten thousand events whose ids are random, and some whose ids tell the time.
async fn crowded() -> Option<(Play, Vec<NewEvent>)> {
    let play = Play::made(4, &[everything("a")]).await?;
    let many = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
        select 'order', n::text, 'order.placed', '1' from generate_series(1, 5000) as n";
    let mut events = Vec::new();
    for number in 0..3 {
        play.fresh.run(many).await;
        let event = of_type("order.paid", number);
        play.commit(std::slice::from_ref(&event)).await;
        events.push(event);
    }
    play.fresh.run(many).await;
    Some((play, events))
}

#[tokio::test]
async fn an_event_is_found_by_the_time_in_its_id() {
    let Some((play, events)) = crowded().await else { return };
    for (number, event) in events.iter().enumerate() {
        let found = play.store.event(event.event().id).await.unwrap();
        assert_eq!(found.seq, Some((number as u64 + 1) * 5_001));
        let mut filter = all();
        filter.id = Some(event.event().id);
        let rows = play.store.events(&filter, &page(10, None)).await.unwrap().rows;
        assert_eq!((rows.len(), rows[0].id), (1, event.event().id));
    }
}

/// An id of another kind, of a clock that was wrong, or with times that do not ascend.
#[tokio::test]
async fn an_id_that_tells_nothing_is_looked_for_everywhere() {
    let Some((play, events)) = crowded().await else { return };
    let client = play.fresh.connect().await;
    let random = "select id::text from {outbox} where seq = 77";
    let random: String = client.query_one(&play.fresh.sql(random), &[]).await.unwrap().get(0);
    let found = play.store.event(random.parse().unwrap()).await.unwrap();
    assert_eq!(found.seq, Some(77));
    play.fresh
        .run(
            "set postrider.repair = 'on';
            update {outbox} set created_at = created_at - seq * interval '1 day'",
        )
        .await;
    let found = play.store.event(events[0].event().id).await.unwrap();
    assert_eq!(found.seq, Some(5_001));
    let refused = play.store.event(EventId::mint()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
}
