//! Signals and gates: a test waits for what happens, and lets it go on, without sleeping.

use std::sync::Arc;

use tokio::sync::watch;

/// Something that happens, counted. Clones are the same signal. Nobody listening costs nothing.
#[derive(Clone, Debug)]
pub struct TestSignal {
    count: Arc<watch::Sender<u64>>,
}

impl Default for TestSignal {
    fn default() -> TestSignal {
        TestSignal { count: Arc::new(watch::Sender::new(0)) }
    }
}

/// The next times a signal happens, counted from when this was made: make it before the cause.
#[derive(Debug)]
#[must_use = "make it before the cause, await it after"]
pub struct Wait {
    receiver: watch::Receiver<u64>,
    from: u64,
}

impl TestSignal {
    /// Says that it happened.
    pub fn happened(&self) {
        self.count.send_modify(|count| *count += 1);
    }

    /// How often it happened.
    pub fn count(&self) -> u64 {
        *self.count.borrow()
    }

    /// Registers now.
    pub fn wait(&self) -> Wait {
        let receiver = self.count.subscribe();
        let from = *receiver.borrow();
        Wait { receiver, from }
    }
}

impl Wait {
    /// Resolves when the signal happened once more since this was made.
    pub async fn once(self) {
        self.times(1).await;
    }

    /// Resolves when the signal happened so many times more since this was made.
    pub async fn times(mut self, times: u64) {
        let until = self.from + times;
        // A sender that is gone never signals again: waiting on would hang without a name.
        let seen = self.receiver.wait_for(|count| *count >= until).await;
        assert!(seen.is_ok(), "the signal was dropped before it happened");
    }
}

/// A place where calls stop until the test opens it. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// Happens whenever a call arrives at the gate.
    pub arrived: TestSignal,
    opened: TestSignal,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Lets through whoever waits, and whoever comes later.
    pub fn open(&self) {
        self.opened.happened();
    }

    /// Stops here until the gate is open.
    pub async fn pass(&self) {
        let mut receiver = self.opened.count.subscribe();
        self.arrived.happened();
        let opened = receiver.wait_for(|count| *count > 0).await;
        assert!(opened.is_ok(), "the gate holds its own signal");
    }
}
