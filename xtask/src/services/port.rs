//! Ports on loopback. A server keeps the port it once had, so that a URL outlives a restart; another
//! user's servers on this machine push it a hundred further.
//!
//! All of them lie below the range from which the kernel draws ports for outgoing connections.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use super::daemon;
use super::place::Place;

/// The first port, unless `POSTRIDER_PORT_BASE` says another.
pub(super) const BASE: u16 = 27_000;
/// From one try to the next: each server has an offset below this.
const STRIDE: u16 = 100;
/// For the port of the last time to become free.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bounds the search: so many users' servers can stand beside each other.
const TRIES: u16 = 40;

/// A port that nobody listens on: the one of the last time, or the nearest free one.
/// `purpose` tells apart what one server listens on for several reasons.
pub(crate) fn choose(place: &Place, purpose: &str, offset: u16) -> Result<u16, String> {
    let record = format!("{purpose}.port");
    let last = place.read(&record).and_then(|text| text.trim().parse().ok());
    // A server that was just killed may hold it for a moment still.
    if let Some(port) = last.filter(|port| daemon::gone(|| is_free(*port), PATIENCE)) {
        return Ok(port);
    }
    let port = candidates(base(), offset).find(|port| is_free(*port)).ok_or_else(|| {
        format!("no free port for {purpose}: {TRIES} ports from {} on are taken", base() + offset)
    })?;
    place.write(&record, &port.to_string())?;
    Ok(port)
}

fn base() -> u16 {
    let given = std::env::var("POSTRIDER_PORT_BASE").ok().and_then(|text| text.parse().ok());
    given.filter(|port| (1024..60_000).contains(port)).unwrap_or(BASE)
}

fn candidates(base: u16, offset: u16) -> impl Iterator<Item = u16> {
    (0..TRIES).filter_map(move |step| base.checked_add(offset)?.checked_add(step * STRIDE))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_a_stride_apart_and_end_with_the_ports() {
        let some: Vec<u16> = candidates(27_000, 32).take(3).collect();
        assert_eq!(some, [27_032, 27_132, 27_232]);
        assert!(candidates(65_000, 600).next().is_none());
    }

    #[test]
    fn a_port_that_is_taken_is_passed_over_and_one_that_was_chosen_is_kept() {
        let folder = crate::services::folder::Folder::temporary("port");
        let place = folder.place("pg");
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        place.write("sql.port", &port.to_string()).unwrap();
        let other = choose(&place, "sql", 32).unwrap();
        assert_ne!(other, port);
        assert!(is_free(other));
        assert_eq!(choose(&place, "sql", 99).unwrap(), other, "the offset no longer matters");
    }
}
