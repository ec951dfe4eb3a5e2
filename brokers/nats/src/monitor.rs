//! What a server tells its operators and no client: how often it forces what it wrote to the disk.
//!
//! Invariant: nothing is sent there but a question, and an answer of any size or kind is read within bounds.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use postrider_core::operate::{Finding, findings};
use postrider_core::{Code, Error, ErrorKind, Result};
use tokio::time::{Instant, timeout_at};

/// An answer has some ten kilobytes; what is longer is none of a server of NATS.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Headers of an answer: the library reads no more.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// How often a server forces its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forcing {
    /// Before it acknowledges.
    Always,
    /// So often, whatever it has acknowledged meanwhile.
    Every(Duration),
    /// It does not say: servers before 2.10.
    Untold,
}

/// Asks each of these hosts. What cannot be asked is told as a finding.
pub(crate) async fn ask(hosts: &[String], until: Instant) -> (Vec<Forcing>, Vec<Finding>) {
    let asked = futures_util::future::join_all(hosts.iter().map(|host| forcing(host, until))).await;
    let (mut told, mut found) = (Vec::new(), Vec::new());
    for (host, answer) in hosts.iter().zip(asked) {
        match answer {
            Ok(forcing) => told.push(forcing),
            Err(error) => found.push(findings::unexamined(&format!("monitoring {host}"), &error)),
        }
    }
    (told, found)
}

/// What that means for streams of which the least has so many replicas.
pub(crate) fn judge(forcing: &[Forcing], replicas: usize) -> Option<Finding> {
    let longest = forcing.iter().filter_map(|it| match it {
        Forcing::Every(time) => Some(*time),
        Forcing::Always | Forcing::Untold => None,
    });
    let Some(longest) = longest.max() else {
        let all = !forcing.is_empty() && forcing.iter().all(|it| *it == Forcing::Always);
        let message = "each message is forced to the disk before it is acknowledged";
        return all.then(|| findings::good("disk", message));
    };
    if replicas > 1 {
        let message = format!(
            "files are forced to the disk every {longest:?}; until then a message stands in the memory of {replicas} servers"
        );
        return Some(findings::good("disk", message));
    }
    Some(findings::coded(
        "disk",
        format!(
            "files are forced to the disk every {longest:?}: a power cut loses what was acknowledged since, where a stream has one \
             replica"
        ),
        "set sync_interval: always in the server's block jetstream, or give the streams three replicas",
        Code::CopiesFew,
    ))
}

/// For how long files may stay unforced, in words, if servers say so.
pub(crate) fn unforced(forcing: &[Forcing]) -> Option<String> {
    let known: Option<Vec<Duration>> = forcing
        .iter()
        .map(|it| match it {
            Forcing::Always => Some(Duration::ZERO),
            Forcing::Every(time) => Some(*time),
            Forcing::Untold => None,
        })
        .collect();
    let longest = known?.into_iter().max()?;
    Some(match longest {
        Duration::ZERO => "which here is nothing".to_owned(),
        time => format!("which here is up to {time:?}"),
    })
}

async fn forcing(host: &str, until: Instant) -> Result<Forcing> {
    let failed = |said: String| {
        Error::new(ErrorKind::Unavailable, "examine").message(format!(
            "http://{host}/varz does not say how the server is set: {said}; correct `monitoring`, or see whether the \
             server has `http:` in its configuration"
        ))
    };
    let uri = format!("http://{host}/varz");
    let uri = uri.parse().map_err(|error| failed(format!("{error}")))?;
    let client: Client<HttpConnector, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).http1_max_buf_size(HEADER_BYTES_MAX).build_http();
    let asked = async {
        let answer = client.get(uri).await.map_err(|error| failed(deepest(&error)))?;
        if !answer.status().is_success() {
            return Err(failed(answer.status().to_string()));
        }
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok(body.map_err(|error| failed(error.to_string()))?.to_bytes())
    };
    let body = timeout_at(until, asked).await;
    let body = body.map_err(|_| failed("it did not answer in time".to_owned()))??;
    let said = serde_json::from_slice(&body);
    read(&said.map_err(|error| failed(format!("its answer is no JSON: {error}")))?)
        .ok_or_else(|| failed("it has no JetStream".to_owned()))
}

/// The client's own words say that it could not, and what is below them why.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// The setting in a server's answer, if it has JetStream. Numbers are nanoseconds.
fn read(varz: &serde_json::Value) -> Option<Forcing> {
    let config = varz["jetstream"].get("config")?;
    Some(match (config["sync_always"].as_bool(), config["sync_interval"].as_u64()) {
        (Some(true), _) => Forcing::Always,
        (_, Some(nanos)) => Forcing::Every(Duration::from_nanos(nanos)),
        (_, None) => Forcing::Untold,
    })
}

#[cfg(test)]
mod tests {
    use postrider_core::operate::Level;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_servers_answer_says_how_often() {
        let of = |config: serde_json::Value| read(&json!({ "jetstream": { "config": config } }));
        let minutes = Duration::from_secs(120);
        assert_eq!(
            of(json!({ "sync_interval": 120_000_000_000_u64 })),
            Some(Forcing::Every(minutes))
        );
        let always = json!({ "sync_interval": 120_000_000_000_u64, "sync_always": true });
        assert_eq!(of(always), Some(Forcing::Always));
        assert_eq!(of(json!({ "max_memory": 1 })), Some(Forcing::Untold));
        for other in [json!({}), json!([]), json!({ "jetstream": {} }), json!(7)] {
            assert_eq!(read(&other), None, "{other}");
        }
    }

    /// R125: what stands on one server alone is what a power cut takes.
    #[test]
    fn what_is_not_forced_matters_where_there_is_one_copy() {
        let every = [Forcing::Always, Forcing::Every(Duration::from_secs(120))];
        let alone = judge(&every, 1).unwrap();
        assert_eq!((alone.level, alone.code), (Level::Warning, Some(Code::CopiesFew)));
        assert!(alone.message.contains("120s"), "{alone:?}");
        assert_eq!(judge(&every, 3).unwrap().level, Level::Good);
        assert_eq!(judge(&[Forcing::Always], 1).unwrap().level, Level::Good);
        assert_eq!(judge(&[Forcing::Always, Forcing::Untold], 1), None, "one does not say");
        assert_eq!(judge(&[], 1), None, "nobody was asked");
        assert_eq!(unforced(&[Forcing::Untold]), None);
        assert!(unforced(&every).unwrap().contains("120s"));
    }
}
