//! Addresses of servers: a host and a port each.

use crate::address::Address;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

/// What stands before the first slash, and behind it.
fn parts(address: &Address) -> Option<(&str, &str)> {
    let (_, rest) = address.literal()?.split_once("://")?;
    Some(rest.split_once('/').unwrap_or((rest, "")))
}

/// Whether it is written as other clients have it, which split at the commas alone: what stands behind the second scheme would
/// be taken for a topic.
fn repeats_scheme(address: &Address) -> bool {
    let scheme = address.scheme().unwrap_or_default();
    address.literal().is_some_and(|text| text.contains(&format!(",{scheme}://")))
}

/// Each server has a host, and a port that can be one.
pub(super) fn examine(address: &Address, at: &Path, example: &str, reading: &mut Reading) {
    if repeats_scheme(address) {
        let scheme = address.scheme().unwrap_or_default();
        let message = format!("`{scheme}://` stands before each server");
        let advice = format!("write it once, as in \"{scheme}://one:4222,two:4222\"");
        return reading.contradict(std::slice::from_ref(at), Complaint::new(message, advice));
    }
    let Some((servers, _)) = parts(address) else { return };
    let Some((server, why)) = servers.split(',').find_map(|one| Some((one, unfit(one.trim())?)))
    else {
        return;
    };
    let message = format!("`{}` is no server: {why}", server.escape_debug());
    let advice = format!("write a host and a port, as in \"{example}\"");
    reading.contradict(std::slice::from_ref(at), Complaint::new(message, advice));
}

/// Nothing stands behind the servers of a destination: its routes name the topics.
pub(super) fn examine_end(address: &Address, paths: &[Path], reading: &mut Reading) {
    let behind = parts(address).filter(|(_, topic)| !topic.is_empty() && !repeats_scheme(address));
    let Some((servers, topic)) = behind else { return };
    let scheme = address.scheme().unwrap_or_default();
    let message =
        format!("`{}` is not looked at here: routes name the topics", topic.escape_debug());
    let advice =
        format!("write url = \"{scheme}://{servers}\", and topic = \"{topic}\" in a route");
    reading.contradict(paths, Complaint::new(message, advice));
}

/// Something stands behind the servers of a source: the topics, or the stream.
pub(super) fn require_end(address: &Address, at: &Path, example: &str, reading: &mut Reading) {
    if parts(address).is_some_and(|(_, what)| what.is_empty()) {
        let message = "the address says where events come from, and not which";
        let advice = format!("write what is consumed behind the servers, as in \"{example}\"");
        reading.contradict(std::slice::from_ref(at), Complaint::new(message, advice));
    }
}

fn unfit(server: &str) -> Option<&'static str> {
    // An address of IPv6 has colons of its own, in brackets.
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (server, None),
    };
    let sound = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match port {
        _ if host.is_empty() => Some("the host is missing"),
        Some(port) if !sound(port) => Some("a port is a number from 1 to 65535"),
        _ => None,
    }
}
