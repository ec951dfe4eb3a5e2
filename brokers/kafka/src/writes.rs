//! Whether this user may write at all, asked without a record being written.
//!
//! Invariant: nothing is sent but the question for the number that each producer begins with.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use postrider_core::Result;
use rdkafka::error::RDKafkaErrorCode;

use crate::client::Producer;
use crate::settings::KafkaSettings;
use crate::trouble::Trouble;

/// How long a refusal is waited for. The library tells nobody that the number was given, so looking takes as long.
const PATIENCE: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_millis(20);

/// Whether the cluster gives this user no number. It gives one to whoever may write to any topic of it, so it says
/// nothing of a single one. An answer that is late counts as none.
///
/// # Errors
/// `Config` if no producer can be made.
pub(crate) fn are_refused(settings: &KafkaSettings, trouble: &Arc<Trouble>) -> Result<bool> {
    let producer = Producer::make(settings, false, Arc::clone(trouble))?;
    let begun = Instant::now();
    let refused = loop {
        let refused = producer.client().fatal_error().map(|(code, _)| code);
        if refused.is_some() || begun.elapsed() >= PATIENCE {
            break refused;
        }
        // waits: the library tells nobody that it asked
        thread::sleep(TURN);
    };
    Ok(refused == Some(RDKafkaErrorCode::ClusterAuthorizationFailed))
}

#[cfg(test)]
mod tests {
    use rdkafka::mocking::MockCluster;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    use super::*;

    /// R125: a refusal is heard; what passes, and no answer at all, is none.
    #[test]
    fn who_may_write_nowhere_is_found() {
        let cluster = MockCluster::new(1).unwrap();
        let settings = KafkaSettings::new(&cluster.bootstrap_servers());
        let refused = || are_refused(&settings, &Arc::new(Trouble::default())).unwrap();
        assert!(!refused(), "the control");
        for (error, expected) in [
            (RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, true),
            (RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS, false),
        ] {
            cluster.request_errors(RDKafkaApiKey::InitProducerId, &[error]);
            assert_eq!(refused(), expected, "{error:?}");
        }
        let nobody = KafkaSettings::new("127.0.0.1:1");
        assert!(!are_refused(&nobody, &Arc::new(Trouble::default())).unwrap());
    }
}
