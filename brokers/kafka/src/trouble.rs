//! What the client last complained about: the reason that a mere "no answer in time" leaves out.
//!
//! Invariant: never a secret; the library's words name hosts and mechanisms.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use postrider_core::{Error, ErrorKind};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::throttle::Throttle;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    last: Mutex<Option<(ErrorKind, String)>>,
    /// That servers keep the client back.
    pub(crate) throttle: Throttle,
}

impl Trouble {
    /// The client says that something is wrong.
    pub(crate) fn note(&self, error: &KafkaError, said: &str) {
        let code = error.rdkafka_error_code();
        let kind = match code {
            Some(
                RDKafkaErrorCode::Authentication
                | RDKafkaErrorCode::SaslAuthenticationFailed
                | RDKafkaErrorCode::UnsupportedSASLMechanism
                | RDKafkaErrorCode::IllegalSASLState
                | RDKafkaErrorCode::ClusterAuthorizationFailed,
            ) => ErrorKind::Unauthorized,
            Some(RDKafkaErrorCode::SSL) => ErrorKind::Unauthorized,
            // A server that does not believe our certificate says so after the handshake, on a connection that
            // it then drops.
            _ if said.contains("certificate") => ErrorKind::Unauthorized,
            _ => ErrorKind::Unavailable,
        };
        let mut known = self.lock();
        // That all are down follows from what was said before, which says more.
        let summary = code == Some(RDKafkaErrorCode::AllBrokersDown);
        let refused = known.as_ref().is_some_and(|(kind, _)| *kind == ErrorKind::Unauthorized);
        if known.is_none() || !(summary || refused && kind != ErrorKind::Unauthorized) {
            *known = Some((kind, said.to_owned()));
        }
    }

    /// It works.
    pub(crate) fn forget(&self) {
        *self.lock() = None;
    }

    /// What was said last.
    pub(crate) fn said(&self) -> Option<String> {
        self.lock().as_ref().map(|(_, said)| said.clone())
    }

    /// Whether the servers, or we, refused who the other is.
    pub(crate) fn is_refusal(&self) -> bool {
        self.lock().as_ref().is_some_and(|(kind, _)| *kind == ErrorKind::Unauthorized)
    }

    /// The error of a call that sent nothing.
    pub(crate) fn unreachable(&self, servers: &str) -> Error {
        let throttled = || Some((ErrorKind::Busy, self.throttle.said(Instant::now())?));
        // Of one that keeps us back no error is heard.
        let known = self.lock().clone().or_else(throttled);
        let (kind, said) = known
            .unwrap_or_else(|| (ErrorKind::Unavailable, "it did not answer in time".to_owned()));
        let advice = advice(kind, &said).map(|advice| format!("; {advice}")).unwrap_or_default();
        Error::new(kind, "connect")
            .message(format!("Kafka cannot be used: {said}; nothing was sent{advice}"))
            .context("servers", servers)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(ErrorKind, String)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which setting to correct, by the library's words: it has one code for whatever goes wrong while a connection is
/// made.
pub(crate) fn advice(kind: ErrorKind, said: &str) -> Option<&'static str> {
    let said = said.to_ascii_lowercase();
    let is = |words: &[&str]| words.iter().any(|word| said.contains(word));
    // Servers close a connection that they do not understand without a word, also while something is sent.
    if is(&["brokers are down", "security.protocol", "broken pipe", "connection reset"]) {
        Some(
            "see whether they run, and whether they ask for encryption (`tls`) or for a user (`user`, `password`, \
             `mechanism`)",
        )
    } else if is(&["unsupported sasl mechanism", "mechanism handshake failed"]) {
        Some("correct `mechanism`: the servers do not take this one")
    } else if is(&["certificate verify failed", "could not be verified"]) {
        Some("the server's certificate is not believed: correct `roots`, or have it renewed")
    } else if is(&["alert", "certificate"]) {
        Some("the server does not take ours: correct or renew `certificate` and `certificate_key`")
    } else if kind == ErrorKind::Unauthorized {
        Some("correct the credentials: `user` and `password`")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_outlives_what_follows_from_it() {
        let trouble = Trouble::default();
        let note = |code, said| trouble.note(&KafkaError::Global(code), said);
        note(RDKafkaErrorCode::BrokerTransportFailure, "connection refused");
        note(RDKafkaErrorCode::AllBrokersDown, "1/1 brokers are down");
        assert_eq!(trouble.said().unwrap(), "connection refused");
        assert!(!trouble.is_refusal());
        note(RDKafkaErrorCode::Authentication, "invalid credentials");
        note(RDKafkaErrorCode::BrokerTransportFailure, "disconnected");
        assert!(trouble.is_refusal());
        let error = trouble.unreachable("a:9092");
        assert_eq!(error.kind(), ErrorKind::Unauthorized);
        assert!(error.to_string().contains("invalid credentials"), "{error}");
        trouble.forget();
        note(RDKafkaErrorCode::BrokerTransportFailure, "Send failed: Broken pipe (after 1ms)");
        let error = trouble.unreachable("a:9092");
        assert!(error.to_string().contains("`mechanism`"), "a server hung up: {error}");
        trouble.forget();
        assert_eq!(trouble.unreachable("a:9092").kind(), ErrorKind::Unavailable);
    }
}
