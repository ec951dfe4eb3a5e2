//! The name of a broker's server, or of the store's, gets another address under a running relay.

#[cfg(any(feature = "kafka", feature = "nats"))]
mod brokers;

use std::time::{Duration, Instant};

use postrider_testkit::names::Moving;
use tokio::runtime::Runtime;

use crate::Shop;
use crate::running::Running;

/// How long events may stand still. Closed connections are found out at once, silent ones by deadlines, of which a store's
/// statement has the longest, 30 s; a machine with other work takes some more.
const STILL_MAX: Duration = Duration::from_secs(60);

/// A way to a server by its name; `None`, with the reason printed, where this machine lets nobody have names of his own.
#[allow(clippy::print_stdout, reason = "a skipped test says why")]
pub(crate) fn moving(shop: &Shop, runtime: &Runtime, behind: u16) -> Option<Moving> {
    match runtime.block_on(Moving::new(shop.folder.path(), "server.test", behind)) {
        Ok(moving) => Some(moving),
        Err(reason) => {
            println!("skipped: a server whose name leads elsewhere: {reason}");
            None
        }
    }
}

/// Carries a relay's events while its server moves, however it leaves its addresses, and where the name leads to somebody
/// silent as well.
///
/// `is_there` returns when the relay is at the new address with all that it has; `place` commits events, and says how many
/// they are; `arrived` says how many have arrived, without copies.
#[allow(clippy::print_stdout, reason = "figures")]
pub(crate) fn carried_while_it_moves(
    runtime: &Runtime,
    moving: &mut Moving,
    relay: &mut Running,
    is_there: &dyn Fn(),
    place: &dyn Fn() -> usize,
    arrived: &dyn Fn() -> usize,
) {
    let mut placed = 0;
    for round in 0..Moving::PLACES {
        runtime.block_on(moving.goes_to(round));
        let begun = Instant::now();
        placed += place();
        while arrived() < placed {
            if begun.elapsed() > STILL_MAX {
                relay.has_said("");
                panic!("after {round} moves {} of {placed}\n{}", arrived(), relay.heard());
            }
            // waits: servers and files tell nobody what came
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("after {round} moves: {:?}", begun.elapsed());
        is_there();
    }
}
