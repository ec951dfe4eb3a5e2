//! The stream away for a minute, with everything else at work.

use std::time::{Duration, Instant};

use crate::queue::Road;
use crate::rounds::assert_kept;
use crate::whole_way::{Course, Store, WholeWay};

/// How long the stream is away.
const AWAY: Duration = Duration::from_secs(60);
/// Events of one round.
const ROUND: u32 = 20;
/// Between two rounds: what is shown is that all comes by the index, and not how much of it a machine can carry in a minute.
const BETWEEN: Duration = Duration::from_secs(2);
/// How soon the stream is read again: a reader that failed tries again after half a minute at most.
const PATIENCE: Duration = Duration::from_secs(45);

/// R043, INV-1 to INV-4: the stream is away for 60 s under load. Everything comes by the index, and when the stream is
/// back both paths are at work again: what was committed has its effect once, in its key's order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_without_the_stream_loses_and_doubles_nothing() {
    let course = Course { store: Store::Dynamo, road: Road::Queue, faults: &[] };
    let Some(mut way) = WholeWay::open(&course).await else { return };
    // Every partition depends on the one that reads the stream.
    way.relays = vec![way.relay(0)];
    way.consumers = vec![way.consumer(&[]), way.consumer(&[])];
    round(&mut way).await;
    let (before, refused) = way.tables_line.streams();
    assert!(before > 0 && refused == 0, "the stream is read: {before} calls, {refused} refused");
    way.tables_line.cut_streams(true);
    let (begun, mut rounds, mut longest) = (Instant::now(), 0, Duration::ZERO);
    while begun.elapsed() < AWAY {
        let began = Instant::now();
        round(&mut way).await;
        longest = longest.max(began.elapsed());
        rounds += 1;
        // waits: the stream is away, and nothing else is to be seen of it
        tokio::time::sleep(BETWEEN).await;
    }
    let (passed, refused) = way.tables_line.streams();
    assert!(refused > 0, "nobody asked the stream while it was away");
    way.tables_line.cut_streams(false);
    let (begun, mut after) = (Instant::now(), 0);
    while after == 0 {
        round(&mut way).await;
        after = way.tables_line.streams().0 - passed;
        assert!(begun.elapsed() < PATIENCE, "the stream is not read again");
        // waits: who reads it tries again in its own time
        tokio::time::sleep(BETWEEN).await;
    }
    // With both paths at work, whoever owns the partitions is killed.
    let writing = way.outbox.write(ROUND);
    way.strike(crate::fault::Fault::RelayKilled, 0).await;
    writing.await.unwrap();
    way.acted(way.outbox.committed.len()).await;
    eprintln!(
        "{{\"away\":{},\"rounds\":{rounds},\"longest_ms\":{},\"calls_before\":{before},\"refused\":{refused},\
         \"calls_after\":{after},\"committed\":{}}}",
        AWAY.as_secs(),
        longest.as_millis(),
        way.outbox.committed.len()
    );
    assert_kept(&way.judge().await, Road::Queue);
    assert_eq!(way.bank.effects().await.len(), way.outbox.committed.len());
    way.close().await;
}

/// Some events, from their commit to their effect.
async fn round(way: &mut WholeWay) {
    way.outbox.write(ROUND).await.unwrap();
    way.acted(way.outbox.committed.len()).await;
}
