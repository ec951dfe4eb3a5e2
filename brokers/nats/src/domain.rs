//! Who asked the wrong domain of JetStream. A leaf node that has one of its own answers for its own streams alone, and
//! says of its hub's that there are none.

use postrider_core::{Error, ErrorKind};
use tokio::time::{Instant, timeout_at};

use crate::connection::Up;
use crate::examine::answer;

/// The domain of the server, where it has one and none was asked for by name.
pub(crate) fn of_account(up: &Up, account: &serde_json::Value) -> Option<String> {
    let domain = account["domain"].as_str().filter(|domain| !domain.is_empty());
    domain.filter(|_| &*up.api == "$JS.API").map(str::to_owned)
}

/// What to do besides, where no stream of this domain takes something.
pub(crate) fn advice(domain: &str) -> String {
    format!(
        "; or, where the stream is one of another domain than this server's, which is `{domain}`: set `domain` of the \
         destination to that one"
    )
}

/// An error that says that a stream is not there, with the domain that was asked, if the server has one of its own.
pub(crate) async fn told_of_the_servers_own(up: &Up, until: Instant, error: Error) -> Error {
    if error.kind() != ErrorKind::Unroutable {
        return error;
    }
    let account = timeout_at(until, answer(up, "INFO", &serde_json::Value::Null)).await;
    match account {
        Ok(Ok(account)) => match of_account(up, &account) {
            Some(domain) => error
                .context("domain", format!("{domain}; set `domain` for a stream of another one")),
            None => error,
        },
        _ => error,
    }
}
