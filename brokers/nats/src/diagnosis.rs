//! Why a connection cannot be made. The client says "IO error" and keeps the cause to itself, so one attempt of
//! our own asks for it; and what is said becomes the setting to correct.
//!
//! Invariant: one such attempt at a time, and none while a connection stands.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider_core::ErrorKind;
use tokio::time::timeout;

use crate::options::{addresses, identified};
use crate::settings::NatsSettings;

/// How long the attempt may take. What is slower is known by its slowness.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);

/// Looks for causes.
#[derive(Clone)]
pub(crate) struct Diagnosis {
    settings: Arc<NatsSettings>,
    busy: Arc<AtomicBool>,
}

impl Diagnosis {
    pub(crate) fn new(settings: Arc<NatsSettings>) -> Diagnosis {
        Diagnosis { settings, busy: Arc::default() }
    }

    /// Finds out why, and tells; unless somebody does so already.
    pub(crate) fn begin(&self, tell: impl FnOnce(String) + Send + 'static) {
        if self.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let diagnosis = self.clone();
        tokio::spawn(async move {
            let found = timeout(ATTEMPT_MAX, attempt(&diagnosis.settings)).await;
            if let Ok(Some(said)) = found {
                tell(said);
            }
            diagnosis.busy.store(false, Ordering::Release);
        });
    }
}

async fn attempt(settings: &NatsSettings) -> Option<String> {
    let options = match identified(settings) {
        Ok(options) => options.name("postrider").connection_timeout(ATTEMPT_MAX),
        Err(error) => return Some(error.to_string()),
    };
    let error = options.connect(addresses(settings).ok()?).await.err()?;
    // The innermost cause is the one that says something.
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said = error.to_string();
        cause = error.source();
    }
    Some(said)
}

/// Whether there is a cause to look for.
pub(crate) fn is_vague(said: &str) -> bool {
    ["IO error", "TLS error", "DNS error"].contains(&said)
}

/// Whose failure it is, and which setting to correct.
pub(crate) fn judge(said: &str) -> (ErrorKind, &'static str) {
    let lower = said.to_ascii_lowercase();
    let is = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if is(&["authorization", "authentication", "signing nonce", "permissions"]) {
        (ErrorKind::Unauthorized, "; correct the credentials of this destination")
    } else if is(&["received fatal alert", "certificate required"]) {
        let advice = "; the server does not take ours: correct or renew `certificate` and \
                      `certificate_key`";
        (ErrorKind::Unauthorized, advice)
    } else if is(&["peer certificate", "no ca certificates", "unknownissuer"]) {
        let advice =
            "; the server's certificate is not believed: correct `roots`, or have it renewed";
        (ErrorKind::Unavailable, advice)
    } else if is(&["corrupt message"]) {
        // What answers a handshake with plain text.
        let advice = "; it does not encrypt there, and `require_tls` or the address asks for it: correct one of them, or \
                      give the server its certificate";
        (ErrorKind::Unavailable, advice)
    } else {
        (ErrorKind::Unavailable, "")
    }
}
