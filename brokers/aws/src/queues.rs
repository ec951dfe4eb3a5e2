//! From the name of a queue to its address.
//!
//! Invariant: an address is asked for once, and again after the queue was missed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_sdk_sqs::Client;

use crate::answer::{Call, Trouble, judge};

/// Addresses that are remembered. A template may make many names; past this many all are asked for again.
const KNOWN_MAX: usize = 1_024;
/// Characters of a queue's name.
const NAME_MAX: usize = 80;

/// See the module.
#[derive(Default)]
pub(crate) struct Queues {
    known: Mutex<HashMap<Arc<str>, Arc<str>>>,
}

impl Queues {
    /// The address of a queue, which may be given by its name or by its address.
    pub(crate) async fn find(
        &self,
        client: &Client,
        account: Option<&str>,
        queue: &Arc<str>,
    ) -> Result<Arc<str>, Trouble> {
        if is_address(queue) {
            return Ok(Arc::clone(queue));
        }
        if let Some(known) = self.lock().get(queue) {
            return Ok(Arc::clone(known));
        }
        let call = Call { action: "sqs:GetQueueUrl", what: "the queue", name: queue };
        let asked = client.get_queue_url().queue_name(&**queue);
        let asked = asked.set_queue_owner_aws_account_id(account.map(str::to_owned)).send().await;
        let answer = asked.map_err(|error| judge(call, &error))?;
        let address: Arc<str> = Arc::from(answer.queue_url().unwrap_or(queue));
        let mut known = self.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(Arc::clone(queue), Arc::clone(&address));
        Ok(address)
    }

    /// It was not there.
    pub(crate) fn forget(&self, queue: &str) {
        self.lock().remove(queue);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<str>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it is an address and not a name.
pub(crate) fn is_address(queue: &str) -> bool {
    queue.starts_with("https://") || queue.starts_with("http://")
}

/// What is wrong with a queue's name, if something is.
pub(crate) fn unusable(queue: &str) -> Option<&'static str> {
    let stem = queue.strip_suffix(".fifo").unwrap_or(queue);
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match queue {
        _ if is_address(queue) => None,
        _ if stem.is_empty() => Some("it is empty"),
        _ if queue.len() > NAME_MAX => Some("it is longer than 80 characters"),
        _ if !stem.chars().all(plain) => {
            Some("it has other characters than a-z A-Z 0-9 _ - and an ending .fifo")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F22: a name comes from the event's own fields, and may be anything.
    #[test]
    fn what_is_no_queue_is_told() {
        for queue in
            ["orders", "shop_orders-2", "orders.fifo", "https://sqs.x/1/a", &"a".repeat(80)]
        {
            assert_eq!(unusable(queue), None, "{queue}");
        }
        for queue in ["", ".fifo", "a b", "a.b", "order/42", "ü", "a\n", &"a".repeat(81)] {
            assert!(unusable(queue).is_some(), "{queue}");
        }
    }
}
