//! What was asked for, carried out by the partition's owner, as PostgreSQL's own tables show it.

use postrider_core::operate::{Operator as _, RequestId, RowKey, Submission, Verb};
use postrider_core::source::{CarriedOut, CarryOutRequest, DueRequest, OutboxSource as _};
use postrider_core::waiting::{RowRef, Settlement, SettlementPart, WaitingChange};
use postrider_core::{ErrorKind, KeyHash, NewEvent, PartitionId, Start};

use crate::operator::{Act, Play, everything, note, of_type};
use crate::support::id;

/// Events of these keys, numbered from 1, each passed in a way.
async fn passed(events: &[(&str, Act)]) -> Option<Play> {
    let play = Play::begin(&[everything("a")]).await?;
    let of = |(key, _): &(&str, Act)| NewEvent::new("order", *key, "t").json(&1).expect("JSON");
    play.commit(&events.iter().map(of).collect::<Vec<_>>()).await;
    let acts: Vec<Act> = events.iter().map(|(_, act)| *act).collect();
    play.settle("a", &acts).await;
    Some(play)
}

fn rows(numbers: &[u64]) -> Vec<RowKey> {
    numbers.iter().map(|seq| RowKey { destination: id("a"), seq: *seq }).collect()
}

async fn ask(play: &Play, verb: Verb) -> RequestId {
    play.store.submit(&Submission { verb, note: note() }).await.expect("a request")
}

async fn carry_out(play: &Play) -> CarriedOut {
    let request = CarryOutRequest { leases: vec![play.lease.clone()], rows_max: 100 };
    play.store.carry_out(&request).await.expect("carry out")
}

/// How many were done and skipped, and whether that is all.
async fn state(play: &Play, request: RequestId) -> (u64, u64, bool) {
    let state = play.store.request(request).await.expect("the request");
    (state.done, state.skipped, state.finished && state.relay.is_some())
}

async fn due(play: &Play) -> Vec<u64> {
    all_due(play).await.iter().map(|row| row.seq).collect()
}

async fn all_due(play: &Play) -> Vec<RowRef> {
    let request = DueRequest {
        lease: play.lease.clone(),
        destination: id("a"),
        except: Vec::new(),
        rows_max: 100,
        bytes_max: u64::MAX,
    };
    let due = play.store.due(&request).await.expect("due");
    due.rows.iter().map(|row| row.row).collect()
}

/// The numbers and states of what waits.
async fn states(play: &Play) -> String {
    let all = "select coalesce(string_agg(seq || ' ' || state, ', ' order by seq), '')
        from {outbox_waiting} where destination = 'a'";
    let client = play.fresh.connect().await;
    client.query_one(&play.fresh.sql(all), &[]).await.expect("a row").get(0)
}

/// R093, R096: a dead letter that is redriven is sent again in its place, its successors behind it, and
/// asking again changes nothing.
#[tokio::test]
async fn a_redriven_dead_letter_goes_before_its_successors() {
    let Some(play) = passed(&[("1", Act::Dead), ("1", Act::Park), ("2", Act::Dead)]).await else {
        return;
    };
    assert_eq!(due(&play).await, [] as [u64; 0]);
    let first = ask(&play, Verb::Redrive(rows(&[1]))).await;
    let again = ask(&play, Verb::Redrive(rows(&[1]))).await;
    let carried = carry_out(&play).await;
    assert_eq!((carried.rows, carried.more), (2, false));
    assert_eq!((carried.touched, carried.freed), (vec![(PartitionId(0), id("a"))], vec![]));
    assert_eq!(states(&play).await, "1 retrying, 2 parked, 3 dead");
    assert_eq!(due(&play).await, [1, 2]);
    assert_eq!(state(&play, first).await, (1, 0, true));
    assert_eq!(state(&play, again).await, (0, 1, true), "it is not dead any more");
    let anew = "select count(*) from {outbox_waiting}
        where seq = 1 and attempts = 0 and reason = 'redriven' and not late";
    assert_eq!(play.fresh.number(anew).await, 1);
    let row = all_due(&play).await[0];
    let mut part = SettlementPart::new(id("a"));
    part.changes = vec![WaitingChange::Delivered(row)];
    let settlement = Settlement { lease: play.lease.clone(), parts: vec![part] };
    play.store.settle(&settlement).await.expect("settle");
    assert_eq!(due(&play).await, [2]);
}

/// INV-3: of several dead letters of a key the later waits for the earlier, in whatever order they are
/// redriven.
#[tokio::test]
async fn dead_letters_of_a_key_come_out_in_order() {
    let Some(play) = passed(&[("1", Act::Dead), ("1", Act::Dead), ("1", Act::Park)]).await else {
        return;
    };
    ask(&play, Verb::Redrive(rows(&[2]))).await;
    carry_out(&play).await;
    assert_eq!(states(&play).await, "1 dead, 2 parked, 3 parked");
    ask(&play, Verb::Redrive(rows(&[1]))).await;
    carry_out(&play).await;
    assert_eq!(states(&play).await, "1 retrying, 2 parked, 3 parked");
    assert_eq!(due(&play).await, [1, 2, 3]);
}

/// F21: what cannot be read stays dead, with its bytes.
#[tokio::test]
async fn a_dead_letter_that_is_no_event_stays() {
    let Some(play) = passed(&[("1", Act::Dead)]).await else { return };
    play.fresh.run("update {outbox_waiting} set format = 9").await;
    let request = ask(&play, Verb::Redrive(rows(&[1]))).await;
    let carried = carry_out(&play).await;
    assert_eq!((carried.rows, carried.touched), (1, vec![]));
    assert_eq!(state(&play, request).await, (0, 1, true));
    assert_eq!(states(&play).await, "1 dead");
}

/// R093: what is discarded is gone, the next of its key comes out, and nothing brings it back.
#[tokio::test]
async fn a_discarded_dead_letter_frees_its_key() {
    let events = [("1", Act::Dead), ("1", Act::Park), ("1", Act::Park), ("2", Act::Dead)];
    let Some(play) = passed(&events).await else { return };
    let request = ask(&play, Verb::Discard(rows(&[1, 3, 4]))).await;
    let carried = carry_out(&play).await;
    assert!(carried.freed.contains(&(PartitionId(0), id("a"), KeyHash::of("order/1"))));
    assert_eq!(state(&play, request).await, (2, 1, true), "what is parked is not given up");
    assert_eq!(states(&play).await, "1 discarded, 2 retrying, 3 parked, 4 discarded");
    assert_eq!(due(&play).await, [2, 3]);
    let kept = "select count(*) from {outbox_waiting} where state = 'discarded'
        and payload is null and payload_bytes is null and headers is null and not holds_key";
    assert_eq!(play.fresh.number(kept).await, 2);
    ask(&play, Verb::Redrive(rows(&[1]))).await;
    carry_out(&play).await;
    assert_eq!(states(&play).await, "1 discarded, 2 retrying, 3 parked, 4 discarded");
}

/// R105: what the cursor has passed is sent again, late; what waits, is gone, or is to come is not.
#[tokio::test]
async fn a_requeue_sends_what_was_passed() {
    let events = [
        ("1", Act::Ack),
        ("1", Act::Ack),
        ("2", Act::Dead),
        ("2", Act::Park),
        ("3", Act::Dead),
        ("4", Act::Ack),
    ];
    let Some(play) = passed(&events).await else { return };
    play.commit(&[of_type("t", 7)]).await;
    play.fresh
        .run(
            "set postrider.repair = 'on';
            delete from {outbox} where seq = 2;
            update {outbox} set payload = null, erased_at = '2026-01-01T00:00:00Z' where seq = 6",
        )
        .await;
    ask(&play, Verb::Discard(rows(&[5]))).await;
    let request = ask(&play, Verb::Requeue(rows(&[1, 2, 3, 4, 5, 6, 7]))).await;
    carry_out(&play).await;
    assert_eq!(state(&play, request).await, (2, 5, true));
    assert_eq!(states(&play).await, "1 retrying, 3 dead, 4 parked, 5 retrying");
    assert_eq!(due(&play).await, [1, 5]);
    let late = "select count(*) from {outbox_waiting}
        where late and not holds_key and reason = 'requeued' and attempts = 0
            and num_nonnulls(payload, payload_bytes) = 1 and headers is not null";
    assert_eq!(play.fresh.number(late).await, 2);
}

/// F35: a crash in the middle leaves neither the change nor the mark, and it is done again.
#[tokio::test]
async fn a_change_and_its_mark_are_one_write() {
    let Some(play) = passed(&[("1", Act::Dead), ("2", Act::Dead)]).await else { return };
    let request = ask(&play, Verb::Redrive(rows(&[1, 2]))).await;
    play.fresh
        .run(
            "create function {schema}.crash() returns trigger language plpgsql as
                $$ begin raise 'crash'; end $$;
            create trigger crash before update on {outbox_request_row}
                for each row when (new.seq = 2) execute function {schema}.crash()",
        )
        .await;
    let asked = CarryOutRequest { leases: vec![play.lease.clone()], rows_max: 100 };
    play.store.carry_out(&asked).await.expect_err("it crashes");
    assert_eq!(states(&play).await, "1 dead, 2 dead");
    assert_eq!(state(&play, request).await, (0, 0, false));
    play.fresh.run("drop trigger crash on {outbox_request_row}").await;
    carry_out(&play).await;
    assert_eq!(states(&play).await, "1 retrying, 2 retrying");
}

/// What is booked as passed, by bucket.
async fn log(play: &Play) -> Vec<(i64, i64, i64)> {
    let all = "select bucket::bigint, count::bigint, id_sum::bigint from {outbox_settled} order by bucket";
    let client = play.fresh.connect().await;
    let rows = client.query(&play.fresh.sql(all), &[]).await.expect("the log");
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

/// A rewind goes back to where history begins, forgets the log above it, and ends the lease, so that nothing in
/// flight is settled from the old place; what is sent again is booked once.
#[tokio::test]
async fn a_rewind_sends_history_again() {
    let Some(mut play) = Play::begin(&[everything("a")]).await else { return };
    play.commit(&(0..5_000).map(|n| of_type("t", n)).collect::<Vec<_>>()).await;
    play.settle_all("a", &[Act::Ack]).await;
    let before = log(&play).await;
    assert_eq!(before.iter().map(|(_, count, _)| count).sum::<i64>(), 5_000);
    let rewind = Verb::Rewind { destination: id("a"), to: Start::Beginning };
    let request = ask(&play, rewind).await;
    let carried = carry_out(&play).await;
    assert_eq!(carried.surrendered, std::slice::from_ref(&play.lease));
    assert_eq!(state(&play, request).await, (1, 0, true));
    assert_eq!(log(&play).await, [], "what is sent again is not booked yet");
    let late = Settlement { lease: play.lease.clone(), parts: Vec::new() };
    assert_eq!(play.store.settle(&late).await.unwrap_err().kind(), ErrorKind::Fenced);
    let old = play.lease.token;
    play.take_leases().await;
    assert!(play.lease.token > old);
    let loaded = play.store.load(&play.lease, &id("a")).await.unwrap();
    assert_eq!(loaded.replay_through, 5_000, "what is sent again is marked so");
    play.settle_all("a", &[Act::Ack]).await;
    assert_eq!(log(&play).await, before, "booked once");
}
