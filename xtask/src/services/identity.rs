//! Which process it is: its number and when it began. Numbers are used again, and a server that
//! died overnight must not be taken for the editor that got its number.

use std::fmt;
use std::fs;
use std::str::FromStr;

/// One process, for as long as the machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    /// In ticks since the machine started.
    began: u64,
}

impl Identity {
    /// The process that has this number now; none where it is gone, or dead and not yet buried.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let began = began(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        Some(Self { pid, began })
    }

    /// Whether this very process still runs.
    pub(crate) fn lives(&self) -> bool {
        Self::of(self.pid) == Some(*self)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid, self.began)
    }
}

impl FromStr for Identity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace().map(str::parse::<u64>);
        match (words.next(), words.next()) {
            (Some(Ok(pid)), Some(Ok(began))) => {
                let pid = u32::try_from(pid).map_err(|_| format!("no process number: {pid}"))?;
                Ok(Self { pid, began })
            }
            _ => Err(format!("no process: {text:?}")),
        }
    }
}

/// The start time in a line of `/proc/PID/stat`. The name of the program stands in parentheses and
/// may hold spaces and parentheses, so what counts is behind the last of them.
fn began(stat: &str) -> Option<u64> {
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // State is field 3 of the line, the number of threads field 20, and the start time field 22. Where
    // the first thread is dead and others are not, ports and files are still held.
    let dead = matches!(words.first()?, &("Z" | "X")) && words.get(17)?.parse() == Ok(1);
    if dead { None } else { words.get(19)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "77 (a) b (c) S 1 77 77 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";

    #[test]
    fn the_start_time_is_found_behind_a_strange_name() {
        assert_eq!(began(STAT), Some(4711));
        let dead = STAT.replace(" S ", " Z ");
        assert_eq!(began(&dead), None);
        assert_eq!(began(&dead.replace(" 0 1 0 4711", " 0 3 0 4711")), Some(4711), "dying");
        assert_eq!(began("77 (a"), None);
    }

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_number() {
        let own = Identity::of(std::process::id()).unwrap();
        assert!(own.lives());
        assert_eq!(own.to_string().parse::<Identity>().unwrap(), own);
        let earlier = Identity { pid: own.pid, began: own.began.wrapping_sub(1) };
        assert!(!earlier.lives());
        "77".parse::<Identity>().expect_err("half a line, as a full disk leaves it");
    }

    #[test]
    fn a_dead_child_that_nobody_waited_for_does_not_live() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let ended = || Identity::of(pid).is_none();
        while !ended() {
            std::thread::yield_now();
        }
        assert!(child.wait().unwrap().success());
    }
}
