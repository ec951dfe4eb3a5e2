//! Results that are too large to be kept: the effect that they are of is made once all the same.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use postrider_core::inbox::{LeftOut, RESULT_BYTES_MAX};
use postrider_core::{Claim, ClaimRequest, ErrorKind, Event, InboxStore as _};
use postrider_inbox::{Context, LeasedHandler, Outcome, Performed};

use crate::bench::{Bench, LEASE, event, handler_name};

fn answer(bytes: usize) -> Bytes {
    Bytes::from(vec![7; bytes])
}

/// Counts how often its effect is made, and answers with so many bytes.
fn answering(made: &Arc<AtomicU32>, bytes: usize) -> impl LeasedHandler + 'static {
    let made = Arc::clone(made);
    move |_: Arc<Event>, _: Context| {
        made.fetch_add(1, Ordering::SeqCst);
        async move { Ok(Outcome::Ack(answer(bytes))) }
    }
}

/// R080, R085: a handler whose answer is too large to be kept has acted, and does not act again: the event is done,
/// the row says how large the answer was, and a copy gets none.
#[tokio::test(start_paused = true)]
async fn an_answer_beyond_the_limit_does_not_repeat_its_effect() {
    let bench = Bench::new();
    let made = Arc::new(AtomicU32::new(0));
    let worker = bench.worker(answering(&made, RESULT_BYTES_MAX + 1));
    let event = event(1, "a");
    let now = worker.perform(&event).await.unwrap();
    assert!(now == Performed::Now(answer(RESULT_BYTES_MAX + 1)), "whoever asked first has it");
    for _ in 0..2 {
        assert_eq!(worker.perform(&event).await.unwrap(), Performed::Before(Bytes::new()));
    }
    assert_eq!(made.load(Ordering::SeqCst), 1);
    let asked = ClaimRequest::new(&event, &handler_name(), LEASE).unwrap();
    match bench.store.claim(&asked).await.unwrap() {
        Claim::Processed { result } => {
            assert_eq!(LeftOut::read(&result), LeftOut::instead_of(&answer(RESULT_BYTES_MAX + 1)));
        }
        other => panic!("it was done: {other:?}"),
    }
}

/// R085: an answer of just the limit is kept, byte for byte.
#[tokio::test(start_paused = true)]
async fn an_answer_of_the_limit_is_kept() {
    let bench = Bench::new();
    let made = Arc::new(AtomicU32::new(0));
    let worker = bench.worker(answering(&made, RESULT_BYTES_MAX));
    let event = event(1, "a");
    worker.perform(&event).await.unwrap();
    let again = worker.perform(&event).await.unwrap();
    assert!(again == Performed::Before(answer(RESULT_BYTES_MAX)), "another answer");
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

/// R088: a step whose result is too large to be kept was made, and is not made again: each later try is told so.
#[tokio::test(start_paused = true)]
async fn a_step_beyond_the_limit_is_not_made_again() {
    let bench = Bench::new();
    let made = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&made);
    let printing = move |_: Arc<Event>, context: Context| {
        let made = Arc::clone(&counted);
        async move {
            let print = |_: String| async move {
                made.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Infallible>(answer(RESULT_BYTES_MAX + 1))
            };
            Ok(Outcome::Ack(context.step("print", print).await?))
        }
    };
    let worker = bench.worker(printing);
    let event = event(1, "a");
    for _ in 0..3 {
        match worker.perform(&event).await.unwrap() {
            Performed::Retry { fault, .. } => {
                assert_eq!(fault.kind, ErrorKind::TooLarge, "{fault}");
                assert!(fault.detail.contains("it is not made again"), "{fault}");
            }
            other => panic!("the handler's step has no result: {other:?}"),
        }
    }
    assert_eq!(made.load(Ordering::SeqCst), 1);
}
