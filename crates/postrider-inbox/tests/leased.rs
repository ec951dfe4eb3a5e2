//! Claims with a lease: heartbeat, takeover, steps, and who is refused.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::subscription::Receipt;
use postrider_core::{
    Claim, ClaimRequest, Clock, Delivery, ErrorKind, Event, Payload, PayloadCodec, Result,
};
use postrider_inbox::{Context, Leased, LeasedHandler, Outcome, Performed};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::bench::{Bench, LEASE, Provider, event, handler_name};

fn charging(provider: &Arc<Provider>) -> impl LeasedHandler + 'static {
    slow(provider, Duration::ZERO)
}

/// Charges once it has thought about it.
fn slow(provider: &Arc<Provider>, span: Duration) -> impl LeasedHandler + 'static {
    let provider = Arc::clone(provider);
    move |_: Arc<Event>, context: Context| {
        let provider = Arc::clone(&provider);
        async move {
            // waits: virtual time passes
            sleep(span).await;
            let charge = |key: String| async move { Ok::<_, Infallible>(provider.charge(&key)) };
            Ok(Outcome::Ack(context.step("charge", charge).await?))
        }
    }
}

async fn receive(worker: &Leased, event: &Arc<Event>) -> Result<Verdict> {
    let receipt = Receipt { message: 1, token: 1 };
    let delivery = Delivery::new(Ok(Arc::clone(event)), Arc::from("orders"), receipt);
    worker.receive(event, &delivery).await
}

/// R080, R085: what was done is not done again, and the stored result is answered.
#[tokio::test(start_paused = true)]
async fn a_second_call_gets_the_stored_result_and_the_handler_is_not_called() {
    let bench = Bench::new();
    let worker = bench.worker(charging(&bench.provider));
    let event = event(1, "a");
    let Performed::Now(first) = worker.perform(&event).await.unwrap() else {
        panic!("the first call acts")
    };
    assert_eq!(worker.perform(&event).await.unwrap(), Performed::Before(first.clone()));
    assert_eq!(receive(&worker, &event).await.unwrap(), Verdict::Duplicate);
    assert!(first.starts_with(b"receipt of") && bench.provider.asked() == 1);
}

/// R076, R079, R083: a claim whose owner died keeps others waiting for the rest of its lease, and
/// not longer.
#[tokio::test(start_paused = true)]
async fn a_dead_owners_claim_is_busy_until_it_expires_and_then_taken_over() {
    let bench = Bench::new();
    let worker = bench.worker(charging(&bench.provider));
    let event = event(1, "a");
    bench.orphan_claim(&event).await;
    let Verdict::Busy { retry_in } = receive(&worker, &event).await.unwrap() else {
        panic!("somebody has it")
    };
    assert!(retry_in <= LEASE && retry_in > LEASE / 2, "{retry_in:?}");
    // waits: virtual time passes
    sleep(retry_in + Duration::from_millis(20)).await;
    assert_eq!(receive(&worker, &event).await.unwrap(), Verdict::Done);
    assert_eq!(bench.provider.charged(), 1);
}

/// Two workers want the same event, one of them slow: what the provider was asked, and what the
/// slow one got.
async fn slow_and_rival(bench: &Bench, deaf: bool) -> Result<Performed> {
    let event = event(1, "a");
    let view = bench.other_view();
    view.deaf.store(deaf, Ordering::SeqCst);
    let slow = bench.worker_on(view, slow(&bench.provider, LEASE * 3));
    let rival = bench.worker(charging(&bench.provider));
    let same = Arc::clone(&event);
    let slow = tokio::spawn(async move { slow.perform(&same).await });
    loop {
        // waits: virtual time passes
        sleep(LEASE / 10).await;
        if !matches!(rival.perform(&event).await.unwrap(), Performed::Busy(_)) {
            return slow.await.unwrap();
        }
    }
}

/// R081: with heartbeats a handler may work for three lease lengths while a rival asks all the time.
#[tokio::test(start_paused = true)]
async fn a_handler_three_leases_long_keeps_its_claim() {
    let bench = Bench::new();
    let slow = slow_and_rival(&bench, false).await.unwrap();
    assert!(matches!(slow, Performed::Now(_)), "{slow:?}");
    assert_eq!(bench.provider.asked(), 1);
}

/// F14, and the negative control of the test above: without heartbeats the rival takes over, and the
/// slow one is told so and starts no effect.
#[tokio::test(start_paused = true)]
async fn without_heartbeats_the_same_handler_loses_its_claim() {
    let bench = Bench::new();
    let error = slow_and_rival(&bench, true).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "uncounted: the store did not answer");
    assert_eq!(bench.provider.asked(), 1, "the rival's");
}

/// The handler is told to stop before the store could give the row to somebody else.
#[tokio::test(start_paused = true)]
async fn cancellation_comes_before_the_store_lets_go() {
    let bench = Bench::new();
    bench.store.deaf.store(true, Ordering::SeqCst);
    let event = event(1, "a");
    let (inbox, clock) = (bench.inbox(), bench.clock.clone());
    let request = ClaimRequest::new(&event, &handler_name(), LEASE).unwrap();
    let told = move |_: Arc<Event>, context: Context| {
        let (inbox, clock, request) = (Arc::clone(&inbox), clock.clone(), request.clone());
        async move {
            let claimed = clock.tick();
            context.cancelled().await;
            let worked = clock.tick().since(claimed);
            assert!(worked >= LEASE / 2, "not at the first heartbeat that failed: {worked:?}");
            let rival = inbox.claim(&request).await.unwrap();
            assert!(matches!(rival, Claim::Leased { .. }), "{rival:?}");
            assert!(context.is_cancelled());
            let step = context.step("late", |_| async { Ok::<_, Infallible>("never") }).await;
            assert_eq!(step.unwrap_err().kind(), ErrorKind::Fenced);
            Ok(Outcome::retry("told to stop"))
        }
    };
    let error = bench.worker(told).perform(&event).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "uncounted: the store did not answer");
}

/// R114: a worker that was paused and comes back after the takeover cannot complete; the winner's
/// result stands.
#[tokio::test(start_paused = true)]
async fn a_paused_worker_cannot_complete_after_the_takeover() {
    let bench = Bench::new();
    let event = event(1, "a");
    let view = bench.other_view();
    view.lying.store(true, Ordering::SeqCst);
    let (started, resumed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (starts, resumes) = (Arc::clone(&started), Arc::clone(&resumed));
    // It believes in its lease to the end: only the token stands between it and the row.
    let zombie = bench.worker_on(view, move |_: Arc<Event>, _: Context| {
        let (starts, resumes) = (Arc::clone(&starts), Arc::clone(&resumes));
        async move {
            starts.notify_one();
            resumes.notified().await;
            Ok(Outcome::Ack(Bytes::from_static(b"zombie")))
        }
    });
    let same = Arc::clone(&event);
    let zombie = tokio::spawn(async move { zombie.perform(&same).await });
    started.notified().await;
    // waits: virtual time passes
    sleep(LEASE + Duration::from_millis(20)).await;
    let winner = bench.worker(charging(&bench.provider));
    let Performed::Now(result) = winner.perform(&event).await.unwrap() else {
        panic!("the lease ran out")
    };
    resumed.notify_one();
    let late = zombie.await.unwrap().unwrap();
    assert!(matches!(&late, Performed::Retry { fault, .. } if fault.kind == ErrorKind::Fenced));
    assert_eq!(winner.perform(&event).await.unwrap(), Performed::Before(result));
}

/// R088, R089, F15: after a crash between the effect and its record, the next owner asks with the
/// same key, and the provider charges once.
#[tokio::test(start_paused = true)]
async fn a_takeover_in_the_middle_asks_with_the_same_key() {
    let bench = Bench::new();
    let event = event(1, "a");
    let view = bench.other_view();
    view.steps_lost.store(3, Ordering::SeqCst);
    let crashing = bench.worker_on(view, charging(&bench.provider));
    assert!(crashing.perform(&event).await.is_err(), "the result could not be stored");
    assert_eq!((bench.provider.asked(), bench.provider.charged()), (1, 1));
    let next = bench.worker(charging(&bench.provider));
    let ended = next.perform(&event).await.unwrap();
    assert!(matches!(ended, Performed::Now(_)), "{ended:?}");
    assert_eq!((bench.provider.asked(), bench.provider.charged()), (2, 1));
}

/// R088: a step whose result is stored is resumed, not repeated.
#[tokio::test(start_paused = true)]
async fn a_stored_step_is_not_asked_for_again() {
    let bench = Bench::new();
    let event = event(1, "a");
    let tries = Arc::new(AtomicU32::new(0));
    let provider = Arc::clone(&bench.provider);
    let handler = move |_: Arc<Event>, context: Context| {
        let (provider, tries) = (Arc::clone(&provider), Arc::clone(&tries));
        async move {
            let charge = |key: String| async move { Ok::<_, Infallible>(provider.charge(&key)) };
            let receipt = context.step("charge", charge).await?;
            let first = tries.fetch_add(1, Ordering::SeqCst) == 0;
            let mail = |key: String| async move {
                if first { Err(std::io::Error::other("mail server away")) } else { Ok(key) }
            };
            context.step("mail", mail).await?;
            Ok(Outcome::Ack(receipt))
        }
    };
    let worker = bench.worker(handler);
    let Performed::Retry { fault, .. } = worker.perform(&event).await.unwrap() else {
        panic!("the mail server was away")
    };
    assert!(fault.detail.contains("mail server away"), "{fault}");
    let again = worker.perform(&event).await.unwrap();
    assert!(
        matches!(&again, Performed::Now(result) if result.starts_with(b"receipt")),
        "{again:?}"
    );
    assert_eq!(bench.provider.asked(), 1);
}

/// A failure lets the claim go: the next try need not wait for the lease.
#[tokio::test(start_paused = true)]
async fn a_failed_try_leaves_the_row_claimable_at_once() {
    let bench = Bench::new();
    let event = event(1, "a");
    for outcome in [Outcome::retry("later"), Outcome::Reject("never".to_owned())] {
        let failing = bench.worker(move |_: Arc<Event>, _: Context| {
            let outcome = outcome.clone();
            async move { Ok(outcome) }
        });
        let ended = failing.perform(&event).await.unwrap();
        assert!(
            matches!(ended, Performed::Retry { .. } | Performed::Rejected(_)),
            "not busy: {ended:?}"
        );
    }
    // Dropped in the middle, as the engine does at the end of a drain.
    let hanging = bench.worker(|_: Arc<Event>, _: Context| std::future::pending());
    let dropped = tokio::time::timeout(LEASE * 2, hanging.perform(&event)).await;
    assert!(dropped.is_err(), "it hangs");
    hanging.at_rest().await;
    let ended = bench.worker(charging(&bench.provider)).perform(&event).await.unwrap();
    assert!(matches!(ended, Performed::Now(_)), "{ended:?}");
}

/// The same id with another payload is an error with a code, not a duplicate.
#[tokio::test(start_paused = true)]
async fn another_payload_under_the_same_id_is_refused_with_its_code() {
    let bench = Bench::new();
    let worker = bench.worker(charging(&bench.provider));
    worker.perform(&event(1, "a")).await.unwrap();
    let mut other = Event::clone(&event(1, "a"));
    other.payload = Payload::json("{}").unwrap();
    let Verdict::Reject(fault) = receive(&worker, &Arc::new(other)).await.unwrap() else {
        panic!("not refused")
    };
    assert!(fault.detail.starts_with("PR-1101"), "{fault}");
    assert_eq!(bench.provider.asked(), 1);
}

/// R086: without a source there is no key.
#[tokio::test(start_paused = true)]
async fn an_event_without_a_source_is_not_acted_on() {
    let bench = Bench::new();
    let mut nobody = Event::clone(&event(1, "a"));
    nobody.source = Arc::from("");
    let error = bench.worker(charging(&bench.provider)).perform(&nobody).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(bench.provider.asked(), 0);
}

/// Not encryption: it only shows where encryption goes.
struct Flip;

impl PayloadCodec for Flip {
    fn name(&self) -> &str {
        "flip"
    }
    fn encode(&self, payload: &Payload, _: &str) -> Result<Bytes> {
        Ok(payload.as_bytes().iter().map(|byte| !byte).collect())
    }
    fn decode(&self, bytes: &[u8], _: &str) -> Result<Payload> {
        Ok(Payload::bytes(bytes.iter().map(|byte| !byte).collect::<Vec<u8>>()))
    }
}

#[tokio::test(start_paused = true)]
async fn the_handler_sees_the_decoded_payload_and_is_not_called_without_the_codec() {
    let bench = Bench::new();
    let mut encoded = Event::clone(&event(1, "a"));
    encoded.payload = Payload::bytes(Flip.encode(&encoded.payload, "").unwrap());
    encoded.encoding = Some("flip".into());
    let reads = |event: Arc<Event>, _: Context| async move {
        assert_eq!(event.encoding, None);
        Ok(Outcome::Ack(Bytes::copy_from_slice(event.payload.as_bytes())))
    };
    let without = bench.worker(reads).perform(&encoded).await.unwrap();
    let Performed::Retry { fault, .. } = without else { panic!("{without:?}") };
    assert!(fault.detail.contains("flip"), "{fault}");
    let with = Leased::builder(handler_name(), bench.inbox(), reads)
        .codec(Arc::new(Flip))
        .clock(Arc::new(bench.clock.clone()))
        .build()
        .unwrap();
    let plain = Bytes::copy_from_slice(event(1, "a").payload.as_bytes());
    assert_eq!(with.perform(&encoded).await.unwrap(), Performed::Now(plain));
}
