//! Crashes and other processes: a killed publisher, a lost answer, two writers at once.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use postrider_core::Broker;
use postrider_local::LocalBroker;

use crate::support::*;

const PATH: &str = "POSTRIDER_LOCAL_CHILD_PATH";

/// Not a test of its own: what the child process of the next one does, until it is killed.
#[test]
#[ignore = "run as a child process"]
fn child_publishes_until_killed() {
    let Some(path) = std::env::var_os(PATH) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let broker = LocalBroker::open(path).unwrap();
        for n in (1..).step_by(3) {
            let batch: Vec<_> = (n..n + 3).map(|n| outgoing(event(n, "a"))).collect();
            publish_all(&broker, &batch).await;
            println!("acked {}", n + 2);
        }
    });
}

/// F1, R031: after SIGKILL, everything acknowledged is there, and each batch is whole or absent.
#[tokio::test]
async fn a_killed_publisher_loses_nothing_acknowledged() {
    let fixture = Fixture::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::child_publishes_until_killed", "--ignored", "--nocapture"])
        .env(PATH, fixture.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let acked: Vec<usize> = lines
        .map_while(Result::ok)
        .filter_map(|line| line.split_once("acked ").map(|(_, n)| n.parse().unwrap()))
        .take(30)
        .collect();
    child.kill().unwrap();
    child.wait().unwrap();
    let stored = stored(&fixture.other()).await;
    assert!(acked.len() == 30 && stored.len() >= acked[29], "{} of {acked:?}", stored.len());
    assert_eq!(stored.len() % 3, 0);
    assert_eq!(stored, (1..=stored.len() as u128).collect::<Vec<_>>());
}

/// F9: the engine gives up waiting and publishes again. There may be duplicates; nothing is missing,
/// and the first copies are in order.
#[tokio::test]
async fn a_dropped_publish_leaves_at_most_duplicates() {
    let fixture = Fixture::new();
    for n in 1..=60u128 {
        let batch = [outgoing(event(n, "a"))];
        for polls in 0..(n % 3) {
            let mut publishing = Box::pin(fixture.broker.publish(&batch));
            for _ in 0..=polls {
                let _ = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(publishing.as_mut().poll(context).is_ready())
                })
                .await;
            }
        }
        publish_all(&fixture.broker, &batch).await;
    }
    let mut seen = HashSet::new();
    let mut firsts = stored(&fixture.broker).await;
    assert!(firsts.len() <= 60 * 3);
    firsts.retain(|n| seen.insert(*n));
    assert_eq!(firsts, (1..=60).collect::<Vec<_>>());
}

/// Several handles, opened at the same moment on a file that does not exist yet.
#[test]
fn many_open_the_new_file_at_once_and_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue.db");
    let start = std::sync::Barrier::new(6);
    std::thread::scope(|scope| {
        for writer in 0..6u128 {
            let (path, start) = (&path, &start);
            scope.spawn(move || {
                start.wait();
                let broker = LocalBroker::open(path).unwrap();
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    for n in 1..=10 {
                        let event = event(writer * 100 + n, &writer.to_string());
                        publish_all(&broker, &[outgoing(event)]).await;
                    }
                });
            });
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let broker = LocalBroker::open(&path).unwrap();
    let stored = runtime.block_on(stored(&broker));
    assert_eq!(stored.len(), 60);
    for writer in 0..6u128 {
        let own: Vec<_> = stored.iter().filter(|n| **n / 100 == writer).collect();
        assert!(own.is_sorted() && own.len() == 10, "{own:?}");
    }
}
