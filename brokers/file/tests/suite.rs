//! The contract suite that every broker passes, for a file and for a writer.

use std::sync::Arc;

use postrider_core::{BoxFuture, Broker, Event, EventId};
use postrider_file::FileBroker;
use postrider_testkit::fault::{ScriptedBroker, SuiteScript};
use postrider_testkit::suite::BrokerHarness;

use crate::support::read_lines;

mod file {
    use super::*;

    struct Files {
        folder: tempfile::TempDir,
        script: SuiteScript,
    }

    impl Files {
        fn path(&self) -> std::path::PathBuf {
            self.folder.path().join("events.ndjson")
        }
    }

    impl BrokerHarness for Files {
        async fn start() -> Files {
            Files { folder: tempfile::tempdir().unwrap(), script: SuiteScript::default() }
        }

        fn broker(&self) -> Arc<dyn Broker> {
            Arc::new(ScriptedBroker::new(FileBroker::open(self.path()).unwrap(), &self.script))
        }

        fn topic(&self, _: &str) -> Arc<str> {
            Arc::from("file")
        }

        fn received<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Vec<Arc<Event>>> {
            Box::pin(async { read_lines(&std::fs::read(self.path()).unwrap_or_default()) })
        }

        fn restart(&mut self) -> BoxFuture<'_, bool> {
            // Every handle opens the file anew.
            Box::pin(async { true })
        }

        fn refuse(&self, id: EventId) -> bool {
            self.script.refuse(id)
        }

        fn lose_next_answer(&self) -> bool {
            self.script.lose_next_answer()
        }
    }

    postrider_testkit::broker_suite!(Files);
}

mod writer {
    use super::*;
    use crate::writers::Shared;
    use postrider_file::FileOptions;

    #[derive(Default)]
    struct Writer {
        shared: Shared,
        script: SuiteScript,
    }

    impl BrokerHarness for Writer {
        async fn start() -> Writer {
            Writer::default()
        }

        fn broker(&self) -> Arc<dyn Broker> {
            let writer = self.shared.clone();
            Arc::new(ScriptedBroker::new(
                FileBroker::from_writer(writer, FileOptions::default()).unwrap(),
                &self.script,
            ))
        }

        fn topic(&self, _: &str) -> Arc<str> {
            Arc::from("writer")
        }

        fn received<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Vec<Arc<Event>>> {
            Box::pin(async { read_lines(&self.shared.text()) })
        }

        fn refuse(&self, id: EventId) -> bool {
            self.script.refuse(id)
        }

        fn lose_next_answer(&self) -> bool {
            self.script.lose_next_answer()
        }
    }

    postrider_testkit::broker_suite!(Writer);
}
