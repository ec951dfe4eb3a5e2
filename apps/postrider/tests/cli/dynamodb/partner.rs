//! A partner that refuses what it is sent, until it is told to take it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::server;

/// What it took, and whether it takes anything.
#[derive(Clone, Default)]
pub(super) struct Partner {
    takes: Arc<AtomicBool>,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Partner {
    /// Listens on this machine; also its port.
    pub(super) fn listen() -> (Partner, u16) {
        let partner = Partner::default();
        let own = partner.clone();
        let port = server::listen(move |_, body| {
            if !own.takes.load(Ordering::SeqCst) {
                return ("422 No such customer", String::new());
            }
            own.bodies.lock().unwrap().push(body);
            ("200 OK", String::new())
        });
        (partner, port)
    }

    pub(super) fn take(&self) {
        self.takes.store(true, Ordering::SeqCst);
    }

    /// What it took, in order.
    pub(super) fn took(&self) -> Vec<String> {
        self.bodies.lock().unwrap().clone()
    }
}
