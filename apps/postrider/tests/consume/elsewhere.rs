//! The name of a server gets another address under a running sidecar.

use std::time::{Duration, Instant};

use postrider_testkit::names::Moving;
use tokio::process::Command;

use crate::endpoint::Endpoint;
use crate::history::assert_one_effect_each;
use crate::remote::Remote;
use crate::sidecar::Sidecar;
use crate::stage::Stage;

/// How long orders may stand still: three times what was seen, and less than the minute after which Kafka's library would give
/// a question up by itself.
const STILL_MAX: Duration = Duration::from_secs(50);

/// A way to a server by its name; `None`, with the reason printed, where this machine lets nobody have names of his own.
pub(crate) async fn moving(stage: &Stage, behind: u16) -> Option<Moving> {
    match Moving::new(stage.folder.path(), "server.test", behind).await {
        Ok(moving) => Some(moving),
        Err(reason) => {
            println!("skipped: a server whose name leads elsewhere: {reason}");
            None
        }
    }
}

/// A sidecar while its server moves, however that leaves its addresses, and where the name leads to somebody silent as well:
/// each order is acted on once, those of a key in their order, and none stands still for long.
pub(crate) async fn acted_on_while_it_moves(remote: &impl Remote, moving: &mut Moving, own: &str) {
    let endpoint = Endpoint::willing().await;
    let from = remote.from().replace(own, &moving.address());
    let command =
        remote.command(&from, &endpoint, &["--group", "billing", "--config", "short.toml"]);
    let mut sidecar = Sidecar::start(Command::from(moving.wrap(command.as_std())));
    sidecar.hear("receiving").await;
    let mut placed = 0;
    for round in 0..Moving::PLACES {
        moving.goes_to(round).await;
        let begun = Instant::now();
        for key in ["1", "2", "3", "1", "2", "3"] {
            remote.place(key).await;
            placed += 1;
        }
        while endpoint.calls().len() < placed {
            assert!(begun.elapsed() < STILL_MAX, "after {round} moves: {}", endpoint.calls().len());
            // waits: until a way that is silent is given up, which nobody tells
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        println!("after {round} moves: {:?}", begun.elapsed());
    }
    remote.settled().await;
    sidecar.stop().await;
    assert_one_effect_each(remote.stage(), &endpoint).await;
}
