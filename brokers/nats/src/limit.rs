//! What a server takes that was told to take more since the connection was made: it says so to who comes, and not to who is
//! there.
//!
//! Invariant: one looks at a time, and only where something was too large.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::connection::{Connection, Up};
use crate::options::{addresses, identified};
use crate::settings::NatsSettings;

/// How long a look may take, the new connection included.
const LOOK_MAX: Duration = Duration::from_secs(2);

impl Connection {
    /// Whether the server takes more by now than it said over this connection, which is left for a new one then.
    pub(crate) async fn takes_more(&self, up: &mut Up, until: Instant) -> bool {
        let until = until.min(Instant::now() + LOOK_MAX);
        let look = async {
            let _alone = self.looking.lock().await;
            if up.is_gone() {
                return true;
            }
            let more =
                asked(self.settings()).await.is_some_and(|now| now > up.client.max_payload());
            if more && up.client.force_reconnect().await.is_ok() {
                up.lost().await;
            }
            more
        };
        timeout_at(until, look).await.unwrap_or_default()
    }
}

async fn asked(settings: &NatsSettings) -> Option<usize> {
    let options = identified(settings).ok()?.name("postrider").connection_timeout(LOOK_MAX);
    let client = options.connect(addresses(settings).ok()?).await.ok()?;
    Some(client.max_payload())
}
