//! Files: durable, whole lines only, shared, rotated.

use std::io::Write;
use std::path::PathBuf;

use postrider_core::{Broker, ErrorKind, Outcome, Payload};
use postrider_file::{FileBroker, FileOptions};
use tempfile::TempDir;

use crate::support::*;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.ndjson");
    (folder, path)
}

fn append(path: &PathBuf, bytes: &[u8]) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

/// A line of ours, as it looks in a file.
fn line() -> Vec<u8> {
    let mut line = postrider_core::cloudevents::to_json(
        &outgoing(1, "a").event,
        postrider_core::Marks::default(),
    )
    .unwrap();
    line.push(b'\n');
    line
}

/// R031: acknowledged means that the line is in the file, behind what was there.
#[tokio::test]
async fn lines_are_appended() {
    let (_folder, path) = folder();
    append(&path, &line());
    let broker = FileBroker::open(&path).unwrap();
    let batch: Vec<_> = (2..=50).map(|n| outgoing(n, "a")).collect();
    assert!(acked(&broker.publish(&batch).await.unwrap()));
    assert_eq!(read_file(&path), (1..=50).collect::<Vec<_>>());
    assert!(broker.capabilities().durable);
}

/// F1: whatever part of a line a crash left, it is cut off, and the line before it stays.
#[tokio::test]
async fn a_partial_last_line_is_cut_at_every_length() {
    let line = line();
    for length in 0..line.len() {
        let (_folder, path) = folder();
        append(&path, &line);
        append(&path, &line[..length]);
        let broker = FileBroker::open(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), line, "{length}");
        broker.publish(&[outgoing(2, "a")]).await.unwrap();
        assert_eq!(read_file(&path), [1, 2]);
    }
    let (_folder, path) = folder();
    append(&path, &line[..40]);
    FileBroker::open(&path).unwrap();
    assert!(std::fs::read(&path).unwrap().is_empty(), "also if it is the only one");
}

/// Another process died in the middle of a line while this one had the file open.
#[tokio::test]
async fn a_partial_line_of_another_process_is_cut_before_the_next_batch() {
    let (_folder, path) = folder();
    let broker = FileBroker::open(&path).unwrap();
    broker.publish(&[outgoing(1, "a")]).await.unwrap();
    append(&path, &line()[..100]);
    broker.publish(&[outgoing(2, "a")]).await.unwrap();
    assert_eq!(read_file(&path), [1, 2]);
}

/// A wrong address does not cost anybody their text.
#[tokio::test]
async fn text_that_is_not_ours_is_completed_not_cut() {
    let options = FileOptions { line_bytes_max: 1_000 };
    for text in ["my notes".to_owned(), "{\"specversion\":\"1.0\"".repeat(100)] {
        let (_folder, path) = folder();
        append(&path, text.as_bytes());
        let broker = FileBroker::open_with(&path, options).unwrap();
        broker.publish(&[outgoing(1, "a")]).await.unwrap();
        let expected = [text.as_bytes(), b"\n", &line()].concat();
        assert_eq!(std::fs::read(&path).unwrap(), expected);
    }
}

/// Several processes append; each line stays whole.
#[test]
fn two_handles_share_a_file() {
    let (_folder, path) = folder();
    std::thread::scope(|scope| {
        for writer in 0..3u128 {
            let path = &path;
            scope.spawn(move || {
                let broker = FileBroker::open(path).unwrap();
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                for n in 0..20 {
                    let batch: Vec<_> =
                        (0..5).map(|m| outgoing(writer * 100 + n * 5 + m, "a")).collect();
                    assert!(acked(&runtime.block_on(broker.publish(&batch)).unwrap()));
                }
            });
        }
    });
    let mut all = read_file(&path);
    assert!(all.chunks(5).all(|batch| batch.windows(2).all(|pair| pair[0] + 1 == pair[1])));
    all.sort_unstable();
    assert_eq!(all, (0..300).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_held_lock_makes_publishing_busy_not_torn() {
    let (_folder, path) = folder();
    let broker = FileBroker::open(&path).unwrap();
    let stranger = std::fs::File::open(&path).unwrap();
    stranger.lock().unwrap();
    let error = broker.publish(&[outgoing(1, "a")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    stranger.unlock().unwrap();
    broker.publish(&[outgoing(1, "a")]).await.unwrap();
    assert_eq!(read_file(&path), [1]);
}

/// INV-7: what is written to a deleted file is lost, so it is written to the file at the path.
#[cfg(unix)]
#[tokio::test]
async fn a_rotated_file_is_opened_again() {
    let (folder, path) = folder();
    let broker = FileBroker::open(&path).unwrap();
    broker.publish(&[outgoing(1, "a")]).await.unwrap();
    let rotated = folder.path().join("events.1");
    std::fs::rename(&path, &rotated).unwrap();
    broker.publish(&[outgoing(2, "a")]).await.unwrap();
    assert_eq!((read_file(&rotated), read_file(&path)), (vec![1], vec![2]));
}

/// R071: prefix order, and the limit of one line.
#[tokio::test]
async fn a_refused_event_stops_those_of_its_key_behind_it() {
    let (_folder, path) = folder();
    let options = FileOptions { line_bytes_max: 10_000 };
    let broker = FileBroker::open_with(&path, options).unwrap();
    let batch = [
        outgoing(1, "a"),
        with_payload(outgoing(2, "a"), Payload::Json(b"{".to_vec().into())),
        with_payload(outgoing(3, "b"), Payload::bytes(vec![0; 10_000])),
        outgoing(4, "a"),
        outgoing(5, "b"),
        outgoing(6, "c"),
    ];
    let outcomes = broker.publish(&batch).await.unwrap();
    assert!(broker.capabilities().prefix_order);
    let kinds: Vec<_> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Rejected(fault) => Some(fault.kind),
            _ => None,
        })
        .collect();
    let (invalid, large) = (Some(ErrorKind::Invalid), Some(ErrorKind::TooLarge));
    assert_eq!(kinds, [None, invalid, large, None, None, None]);
    assert_eq!(outcomes[3..], [Outcome::Skipped, Outcome::Skipped, Outcome::Acked]);
    assert_eq!(read_file(&path), [1, 6]);
}

/// JSON written over several lines is one line here, and says the same.
#[tokio::test]
async fn line_breaks_in_a_payload_do_not_break_the_line() {
    let (_folder, path) = folder();
    let broker = FileBroker::open(&path).unwrap();
    let payload = Payload::json("{\r\n  \"text\": \"a\\nb\"\n}").unwrap();
    broker.publish(&[with_payload(outgoing(1, "a"), payload)]).await.unwrap();
    let text = std::fs::read(&path).unwrap();
    assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1);
    let event = read_lines(&text).remove(0);
    let value: serde_json::Value = serde_json::from_slice(event.payload.as_bytes()).unwrap();
    assert_eq!(value, serde_json::json!({"text": "a\nb"}));
}

#[tokio::test]
async fn addresses_that_lead_nowhere_have_their_kind() {
    let (folder, path) = folder();
    for (address, kind) in [
        (format!("file://{}", folder.path().display()), ErrorKind::Config),
        (format!("file://{}/no/file", folder.path().display()), ErrorKind::NotFound),
        (format!("file://{}/below", path.display()), ErrorKind::NotFound),
        ("file://".to_owned(), ErrorKind::Config),
        ("stdout://x".to_owned(), ErrorKind::Config),
        ("kafka://x".to_owned(), ErrorKind::Config),
    ] {
        let error = FileBroker::from_url(&address.parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), kind, "{address}: {error:?}");
    }
    let broker = FileBroker::from_url(&format!("file://{}", path.display()).parse().unwrap());
    assert!(acked(&broker.unwrap().publish(&[outgoing(1, "a")]).await.unwrap()));
}

/// F24, on systems that have a device which is always full: a typed error, and nothing acknowledged.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_is_a_full_disk() {
    let broker = FileBroker::open("/dev/full").unwrap();
    let error = broker.publish(&[outgoing(1, "a")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DiskFull, "{error:?}");
}
