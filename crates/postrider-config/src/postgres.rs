//! How PostgreSQL is used.

use crate::choice::Pooler;
use crate::field::Scalar;
use crate::key::Class::Restart;
use crate::key::{Json, Key, Leaf};
use crate::node::Node;
use crate::reading::Complaint;
use crate::section::section;

section! {
    /// How PostgreSQL databases are used: the store, and the inboxes of consumers.
    pub struct PostgresConfig {
        /// What stands between Postrider and the server. `auto` finds out. `none` and `session`, a pooler
        /// in session mode, must be true; behind `transaction` nothing is prepared or listened for.
        pooler: Pooler { default: "auto", class: Restart },
        /// What must have an event on its disk before it is published: the server itself, `local`, or
        /// the standby with that `application_name` too, so that a failover to it takes back nothing
        /// that was published. While that standby is not there, nothing is published.
        publish_after: PublishAfter { default: "local", class: Restart },
    }
}

impl PostgresConfig {
    /// Whether nothing but the defaults is asked for, which any store gives.
    pub fn asks_for_nothing(&self) -> bool {
        self.pooler == Pooler::Auto && self.publish_after == PublishAfter::Local
    }
}

/// What must have an event on its disk before it is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishAfter {
    /// The server itself.
    Local,
    /// The standby with this `application_name` as well.
    Standby(String),
}

impl Scalar for PublishAfter {
    const LEAF: Leaf = Leaf {
        word: "place",
        expected: "\"local\", or \"standby:NAME\"",
        example: "standby:berlin",
        // The server shows no more of a name, and nothing else in it.
        json: Json::Text("^(local|standby:[\\x20-\\x7e]{1,63})$"),
        secret: false,
    };

    fn parse(node: &Node, key: &Key) -> Option<Result<PublishAfter, Complaint>> {
        let text = node.text()?;
        let wrong = |why: &str| {
            let advice = "write \"local\", or \"standby:\" and the application_name that the standby has in \
                          pg_stat_replication";
            Err(Complaint::new(format!("`{}`: {why}", key.name), advice))
        };
        Some(match text.split_once(':') {
            None if text == "local" => Ok(PublishAfter::Local),
            Some(("standby", name)) => match name.len() {
                0 => wrong("the standby has no name"),
                1..=63 if name.bytes().all(|byte| matches!(byte, b' '..=b'~')) => {
                    Ok(PublishAfter::Standby(name.to_owned()))
                }
                _ => wrong("the name of a standby has 1 to 63 characters of ASCII"),
            },
            _ => wrong("that is neither the server nor a standby"),
        })
    }

    fn shown(&self) -> String {
        match self {
            PublishAfter::Local => "local".to_owned(),
            PublishAfter::Standby(name) => format!("standby:{name}"),
        }
    }

    fn placeholder() -> PublishAfter {
        PublishAfter::Local
    }
}
