//! The archive, and what it does when it cannot write.

use std::sync::Arc;

use postrider_core::{Archive, ErrorKind, Event, EventId, cloudevents};
use postrider_file::FileArchive;

fn event(number: u128) -> Arc<Event> {
    let mut event = Event::new(EventId::from_u128(number), "order", "42", "order.placed");
    event.source = Arc::from("/shop");
    Arc::new(event)
}

/// R102: what was archived is there, event by event, before anything is deleted.
#[tokio::test]
async fn every_event_is_a_line_of_the_day() {
    let folder = tempfile::tempdir().unwrap();
    let archive = FileArchive::open(folder.path().join("archive")).unwrap();
    let events: Vec<_> = (1..=250).map(event).collect();
    archive.append(&events[..200]).await.unwrap();
    archive.append(&events[200..]).await.unwrap();
    let mut ids = Vec::new();
    for file in std::fs::read_dir(folder.path().join("archive")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.starts_with("outbox-2") && name.ends_with(".ndjson"), "{name}");
        let text = std::fs::read_to_string(path).unwrap();
        ids.extend(text.lines().map(|line| cloudevents::parse(line.as_bytes()).unwrap().0.id));
    }
    assert_eq!(ids, events.iter().map(|event| event.id).collect::<Vec<_>>());
}

/// A folder that is a file is said before the relay starts.
#[test]
fn a_folder_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "x").unwrap();
    assert_eq!(FileArchive::open(&path).unwrap_err().kind(), ErrorKind::Config);
}

/// An archive whose folder went away answers with an error, and the events stay.
#[tokio::test]
async fn what_cannot_be_archived_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let archive = FileArchive::open(folder.path().join("archive")).unwrap();
    std::fs::remove_dir_all(folder.path().join("archive")).unwrap();
    assert!(archive.append(&[event(1)]).await.is_err());
}
