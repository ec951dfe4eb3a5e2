//! What the tests share: tables under a random prefix, dropped with the value.

use std::time::Duration;

use postrider_dynamodb::{Connection, Names, Settings, Setup, init};
use uuid::Uuid;

/// Tables of a test's own.
pub(crate) struct Fresh {
    pub(crate) settings: Settings,
    pub(crate) connection: Connection,
}

/// The server's address, or the reason why there is none.
pub(crate) fn url() -> Result<String, String> {
    postrider_testkit::services::url("ddb")
}

impl Fresh {
    /// Names without tables; nothing, with the reason printed, where there is no server.
    pub(crate) fn empty() -> Option<Fresh> {
        let url = url().map_err(|reason| println!("skipped: {reason}")).ok()?;
        let prefix = format!("t{}-", &Uuid::now_v7().simple().to_string()[4..]);
        let mut settings = Settings::at(url, Names::with_prefix(&prefix));
        // Many tests share one emulator, on a machine that may be busy.
        settings.call_time_max = Duration::from_secs(30);
        Some(Fresh::named(settings))
    }

    fn named(settings: Settings) -> Fresh {
        let connection = Connection::new(settings.clone()).expect("valid names");
        Fresh { settings, connection }
    }

    /// Tables for so many partitions.
    pub(crate) async fn new(partitions: u16) -> Option<Fresh> {
        let fresh = Fresh::empty()?;
        let setup = Setup { partitions: Some(partitions), ..Setup::default() };
        init(&fresh.connection, &setup).await.expect("the tables are made");
        Some(fresh)
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let settings = self.settings.clone();
        let cleaned = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let names = settings.names.clone();
                let connection = Connection::new(settings).expect("valid names");
                let client = connection.tables().await;
                for table in [&names.outbox, &names.store, &names.inbox] {
                    _ = Box::pin(client.delete_table().table_name(table).send()).await;
                }
            });
        });
        _ = cleaned.join();
    }
}
