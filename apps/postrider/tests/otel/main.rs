//! Traces of the binary, as a collector gets them. Without the feature `otel`: that nothing of
//! OpenTelemetry is there, and that the program says so.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod collector;
mod tree;

use std::process::{Command, Output, Stdio};

use postrider_core::NewEvent;
use postrider_sqlite::Outbox;
use tempfile::TempDir;

use crate::collector::{Answer, Collector};

/// A context that somebody made, and sampled.
const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TRACE: [u8; 16] = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes();
const SPAN: [u8; 8] = 0xb7ad_6b71_6920_3331_u64.to_be_bytes();

/// Whether the binary is built with or without the feature, as a test needs it; where it is not, the
/// test says that it was skipped.
#[expect(clippy::print_stdout, reason = "a skipped test says why")]
fn is_built(with: bool, test: &str) -> bool {
    let built = cfg!(feature = "otel");
    if built != with {
        let how = if built { "with" } else { "without" };
        println!("skipped: {test}: the binary is built {how} the feature otel");
    }
    built == with
}

/// A shop with events of which some have a context.
struct Shop {
    folder: TempDir,
}

impl Shop {
    fn new(contexts: &[Option<&str>]) -> Shop {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        postrider_sqlite::init(&path).unwrap();
        let mut database = postrider_sqlite::connect(&path).unwrap();
        let tx = database.transaction().unwrap();
        for (number, context) in contexts.iter().enumerate() {
            let mut event = NewEvent::new("order", number.to_string(), "order.placed");
            if let Some(context) = context {
                event = event.header("traceparent", *context);
            }
            Outbox::new().enqueue(&tx, &event).unwrap();
        }
        tx.commit().unwrap();
        Shop { folder }
    }

    /// Delivers what is there.
    fn relay(&self, collector: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command
            .args(["relay", "--store", "sqlite://shop.db", "--to", "stdout", "--once"])
            .current_dir(self.folder.path())
            .env("TMPDIR", self.folder.path())
            .env("POSTRIDER_OBSERVE__OTLP", collector)
            .stdin(Stdio::null());
        for name in postrider_testkit::services::variables() {
            command.env_remove(name);
        }
        command.output().unwrap()
    }
}

/// The run delivered so many events, and ended well.
fn assert_delivered(run: &Output, events: usize) -> String {
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert_eq!(run.status.code(), Some(0), "{err}");
    assert_eq!(out.lines().count(), events, "{out}\n{err}");
    err.into_owned()
}

fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

/// The collector gets a span for the event that has a sampled context, with its trace, and none for the
/// others: protobuf holds ids and texts as they are.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_the_spans_of_sampled_events() {
    if !is_built(true, "a_collector_gets_the_spans_of_sampled_events") {
        return;
    }
    let collector = Collector::start(Answer::Takes).await;
    let unsampled = SAMPLED.replace("-01", "-00");
    let shop = Shop::new(&[Some(SAMPLED), None, Some("no context"), Some(&unsampled)]);
    let run = shop.relay(&collector.address());
    let err = assert_delivered(&run, 4);
    assert!(!err.contains("collector takes them again"), "{err}");
    let got = collector.got();
    let [request] = &got[..] else { panic!("{} requests: {err}", got.len()) };
    assert_eq!(request.path, "/v1/traces");
    assert_eq!(request.content_type, "application/x-protobuf");
    for part in [&TRACE[..], &SPAN, b"send default", b"postrider.outcome", b"acked", b"postrider"] {
        assert!(contains(&request.body, part), "{}", String::from_utf8_lossy(part));
    }
    let spans = request.body.windows(12).filter(|window| window == b"send default").count();
    assert_eq!(spans, 1);
    // The control: what is no part of a span is not found.
    assert!(!contains(&request.body, b"send nowhere"));
}

/// The collector's state is nothing to the events: they are delivered, and one line says what is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_fails_costs_no_event_and_one_line() {
    if !is_built(true, "a_collector_that_fails_costs_no_event_and_one_line") {
        return;
    }
    let refuses = Collector::start(Answer::Refuses).await;
    let gone = {
        let collector = Collector::start(Answer::Takes).await;
        collector.address()
    };
    for collector in [refuses.address(), gone] {
        let run = Shop::new(&[Some(SAMPLED); 20]).relay(&collector);
        let err = assert_delivered(&run, 20);
        assert_eq!(err.matches("until the collector takes them again").count(), 1, "{err}");
        assert!(err.contains("sent=0 lost=20"), "{err}");
    }
}

/// An address that cannot be used is refused before anything is sent.
#[test]
fn an_address_for_tls_is_refused_with_advice() {
    if !is_built(true, "an_address_for_tls_is_refused_with_advice") {
        return;
    }
    let run = Shop::new(&[None]).relay("https://127.0.0.1:4318");
    let err = String::from_utf8_lossy(&run.stderr);
    assert_eq!((run.status.code(), run.stdout.len()), (Some(78), 0), "{err}");
    assert!(err.contains("http://127.0.0.1:4318"), "{err}");
}

/// A program without the feature delivers, and says that it sends no traces.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_feature_the_program_says_so() {
    if !is_built(false, "without_the_feature_the_program_says_so") {
        return;
    }
    let collector = Collector::start(Answer::Takes).await;
    let err = assert_delivered(&Shop::new(&[Some(SAMPLED)]).relay(&collector.address()), 1);
    assert!(err.contains("built without the feature `otel`"), "{err}");
    assert_eq!(collector.got().len(), 0);
}
