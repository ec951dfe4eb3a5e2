//! Writers that fail: closed pipes, half written lines, a reader that does not read.

use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use postrider_core::{Broker, ErrorKind};
use postrider_file::{FileBroker, FileOptions};

use crate::support::*;

/// A writer that many handles share, and that fails when it is told to.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    text: Vec<u8>,
    /// Bytes that are still taken before one write fails.
    fails_after: Option<usize>,
}

impl Shared {
    pub(crate) fn text(&self) -> Vec<u8> {
        self.0.lock().unwrap().text.clone()
    }

    fn fail_after(&self, bytes: usize) {
        self.0.lock().unwrap().fails_after = Some(bytes);
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap();
        let taken = match state.fails_after {
            Some(0) => {
                state.fails_after = None;
                return Err(io::ErrorKind::StorageFull.into());
            }
            Some(left) => left.min(bytes.len()),
            None => bytes.len(),
        };
        state.fails_after = state.fails_after.map(|left| left - taken);
        state.text.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Wherever a write broke off, what comes next is on a line of its own.
#[tokio::test]
async fn a_torn_line_does_not_tear_the_next() {
    for taken in [0, 1, 50, 400] {
        let shared = Shared::default();
        let broker = FileBroker::from_writer(shared.clone(), FileOptions::default()).unwrap();
        broker.publish(&[outgoing(1, "a")]).await.unwrap();
        let before = shared.text().len();
        shared.fail_after(taken);
        let batch = [outgoing(2, "a"), outgoing(3, "a")];
        let error = broker.publish(&batch).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DiskFull);
        assert_eq!(shared.text().len(), before + taken);
        assert!(acked(&broker.publish(&batch).await.unwrap()));
        let text = String::from_utf8(shared.text()).unwrap();
        let whole: Vec<_> = text
            .lines()
            .filter_map(|line| postrider_core::cloudevents::parse(line.as_bytes()).ok())
            .map(|(event, _)| event.id.as_u128())
            .collect();
        assert_eq!(whole.first(), Some(&1));
        assert!(whole.ends_with(&[2, 3]), "{taken}: {whole:?}");
    }
}

/// The other side went away: the endpoint's failure, each time, and no panic.
#[tokio::test]
async fn a_closed_pipe_is_the_endpoints_failure() {
    let (mut reader, writer) = io::pipe().unwrap();
    let broker = FileBroker::from_writer(writer, FileOptions::default()).unwrap();
    broker.publish(&[outgoing(1, "a")]).await.unwrap();
    let mut text = vec![0; 4_096];
    let length = reader.read(&mut text).unwrap();
    assert_eq!(read_lines(&text[..length]).len(), 1);
    drop(reader);
    for _ in 0..2 {
        let error = broker.publish(&[outgoing(2, "a")]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    }
    assert!(!broker.capabilities().durable);
}

/// A call that is dropped while the thread is stuck in another one writes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_dropped_before_its_turn_writes_nothing() {
    let (mut reader, writer) = io::pipe().unwrap();
    let broker = FileBroker::from_writer(writer, FileOptions::default()).unwrap();
    // More than a pipe holds: the thread waits for the reader.
    let first: Vec<_> = (1..=500).map(|n| outgoing(n, "a")).collect();
    let publishing = tokio::spawn({
        let broker = broker.clone();
        async move { broker.publish(&first).await }
    });
    let mut text = vec![0; 16];
    // The first bytes: the thread has begun, and is stuck until somebody reads on.
    reader.read_exact(&mut text).unwrap();
    let batch = [outgoing(1_000, "a")];
    let mut dropped = Box::pin(broker.publish(&batch));
    std::future::poll_fn(|context| {
        assert!(dropped.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    drop(dropped);
    let reading = std::thread::spawn(move || {
        reader.read_to_end(&mut text).unwrap();
        text
    });
    assert!(acked(&publishing.await.unwrap().unwrap()));
    assert!(acked(&broker.publish(&[outgoing(2_000, "a")]).await.unwrap()));
    drop(broker);
    let numbers: Vec<_> =
        read_lines(&reading.join().unwrap()).iter().map(|event| event.id.as_u128()).collect();
    assert_eq!(numbers, (1..=500).chain([2_000]).collect::<Vec<_>>());
}

const CHILD: &str = "POSTRIDER_FILE_CHILD";

/// Not a test of its own: the child process of the next one, whose standard output is a pipe.
#[tokio::test]
#[ignore = "run as a child process"]
async fn child_publishes_to_stdout() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let broker = FileBroker::stdout().unwrap();
    for n in 1.. {
        if let Err(error) = broker.publish(&[outgoing(n, "a")]).await {
            eprintln!("child: {:?}", error.kind());
            return;
        }
    }
}

/// The real standard output: lines arrive, and when the reader goes away the process is told.
#[test]
fn a_closed_standard_output_is_no_panic() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writers::child_publishes_to_stdout", "--ignored", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = vec![0; 100_000];
    child.stdout.take().unwrap().read_exact(&mut text).unwrap();
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    child.wait().unwrap();
    let text = String::from_utf8(text).unwrap();
    let numbers: Vec<_> = text
        .lines()
        .filter_map(|line| line.find("{\"specversion\"").map(|at| &line[at..]))
        .filter_map(|line| postrider_core::cloudevents::parse(line.as_bytes()).ok())
        .map(|(event, _)| event.id.as_u128())
        .collect();
    assert!(numbers.len() > 100);
    assert_eq!(numbers, (1..=numbers.len() as u128).collect::<Vec<_>>());
    assert!(errors.contains("child: Unavailable"), "{errors}");
}
