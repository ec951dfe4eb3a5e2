//! Addresses of servers.
//!
//! Invariant: the library is given no port that is none: it would take the lower sixteen bits of one that is too large, and
//! connect there.

use postrider_core::Result;
use postrider_core::operate::Finding;

use crate::settings::wrong;

/// Stands for the servers in a command of an advice: Kafka's tools do nothing unless some are named.
pub(crate) const CLUSTER: &str = "HOST:9092";

/// Names the servers in what is advised.
pub(crate) fn name_in(findings: &mut [Finding], servers: &[String]) {
    let servers = servers.join(",");
    for advice in findings.iter_mut().filter_map(|finding| finding.advice.as_mut()) {
        *advice = advice.replace(CLUSTER, &servers);
    }
}

/// # Errors
/// `Config` about the first that is no address, without what stands before an `@`: it may be a password.
pub(crate) fn check(servers: &[String]) -> Result<()> {
    if servers.is_empty() {
        return Err(wrong("`servers` names at least one server"));
    }
    let Some((server, why)) = servers.iter().find_map(|one| Some((one, unfit(one)?))) else {
        return Ok(());
    };
    let shown = server.rsplit('@').next().unwrap_or_default();
    Err(wrong(format!("`{}` is no server of Kafka: {why}", shown.escape_debug())))
}

fn unfit(server: &str) -> Option<&'static str> {
    if server.contains(['/', '@']) || server.contains(char::is_whitespace) {
        return Some("write host:port; topics and credentials have settings of their own");
    }
    // An address of IPv6 has colons of its own, in brackets.
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (server, None),
    };
    let sound = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match port {
        _ if host.is_empty() => Some("the host is missing: write host:port"),
        Some(port) if !sound(port) => Some("a port is a number from 1 to 65535"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_and_a_port() {
        let checked = |server: &str| check(&["kafka-1:9092".to_owned(), server.to_owned()]);
        for server in ["kafka", "127.0.0.1:9092", "[::1]:9092", "[::1]", "a.b:1", "a:65535"] {
            assert!(checked(server).is_ok(), "{server}");
        }
        for (server, why) in [
            ("127.0.0.1:270920", "from 1 to 65535"),
            ("a:0", "from 1 to 65535"),
            ("a:", "from 1 to 65535"),
            ("a:kafka", "from 1 to 65535"),
            (":9092", "the host is missing"),
            ("", "the host is missing"),
            ("a:9092/orders", "topics and credentials"),
            ("a b:9092", "topics and credentials"),
            ("joe:pa55@a:9092", "topics and credentials"),
        ] {
            let refused = checked(server).unwrap_err().to_string();
            assert!(refused.contains(why) && !refused.contains("pa55"), "{server}: {refused}");
        }
        assert!(check(&[]).is_err());
    }
}
