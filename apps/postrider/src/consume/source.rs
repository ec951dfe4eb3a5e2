//! Where events come from: which subscription stands behind `--from URL`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Subscription, TargetUrl};
use postrider_local::{LocalBroker, SubscribeOptions};

use crate::failure::Failure;
use crate::store::unknown;

/// The sources that work today, as they are written.
const WORKS: [&str; 1] = ["local://PATH/TOPIC"];

/// Where from, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Topics of a local broker's file.
    Local {
        /// The file.
        path: PathBuf,
        /// A pattern of topics.
        topics: String,
    },
}

/// How to receive.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    pub(crate) group: String,
    /// How long a delivery stays invisible without a sign of life.
    pub(crate) visibility: Duration,
    /// Deliveries after which the broker gives up by itself: beyond what the engine allows, so that
    /// the engine's reason is the one that is kept.
    pub(crate) deliveries_max: u32,
}

impl Source {
    /// Reads a source's address. What stands after the last `/` is a pattern of topics, unless what
    /// stands before it is a folder: then there is no pattern, and all topics are meant.
    ///
    /// # Errors
    /// A configuration failure that lists what works.
    pub(crate) fn parse(text: &str) -> Result<Source, Failure> {
        let advice = "Write --from local://queue.db/order.* for some topics of a file, or \
                      local://queue.db for all of them.";
        let url: TargetUrl = text.parse().map_err(|error| Failure::from(error).advice(advice))?;
        if url.scheme() != "local" {
            return Err(unknown("source", text, url.scheme(), &WORKS));
        }
        if url.expose() != url.path() {
            return Err(Failure::config("local:// takes no parameters").advice(advice));
        }
        let (path, topics) = match url.path().rsplit_once('/') {
            Some((path, topics)) if !path.is_empty() && !Path::new(path).is_dir() => (path, topics),
            _ => (url.path(), "*"),
        };
        if path.is_empty() || topics.is_empty() || Path::new(path).is_dir() {
            return Err(Failure::config("the source names no file").advice(advice));
        }
        Ok(Source::Local { path: PathBuf::from(path), topics: topics.to_owned() })
    }

    /// Subscribes.
    ///
    /// # Errors
    /// What the broker says.
    pub(crate) async fn subscribe(
        &self,
        wishes: &Wishes,
    ) -> Result<Arc<dyn Subscription>, Failure> {
        Ok(match self {
            Source::Local { path, topics } => {
                let options = SubscribeOptions {
                    visibility: wishes.visibility,
                    deliveries_max: wishes.deliveries_max,
                    ..SubscribeOptions::default()
                };
                let broker = LocalBroker::open(path)?;
                Arc::new(broker.subscribe(&wishes.group, topics.as_str(), options).await?)
            }
        })
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Local { path, topics } => write!(f, "{topics} of local://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(text: &str) -> (String, String) {
        let Source::Local { path, topics } = Source::parse(text).unwrap();
        (path.display().to_string(), topics)
    }

    #[test]
    fn a_source_is_a_file_and_a_pattern() {
        let folder = tempfile::tempdir().unwrap();
        let file = format!("{}/queue.db", folder.path().display());
        for (text, path, topics) in [
            ("local://queue.db".to_owned(), "queue.db", "*"),
            ("local://queue.db/order.*".to_owned(), "queue.db", "order.*"),
            (format!("local://{file}"), &*file, "*"),
            (format!("local://{file}/*.placed"), &*file, "*.placed"),
        ] {
            assert_eq!(local(&text), (path.to_owned(), topics.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_does_not_work_is_said_with_what_does() {
        for (text, expected) in [
            ("kafka://k:9092/orders", "What works today: local://PATH/TOPIC"),
            ("locl://queue.db", "did you mean `local://PATH/TOPIC`?"),
            ("local://", "names no file"),
            ("local:///", "names no file"),
            ("local://queue.db/", "names no file"),
            ("local://queue.db?x=1", "takes no parameters"),
        ] {
            let shown = Source::parse(text).unwrap_err().plain_text();
            assert!(shown.contains(expected), "{text}: {shown}");
        }
    }
}
