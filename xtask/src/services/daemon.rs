//! Starting a server and ending it. What is ended is only what was started here, and only while it
//! is the very process that was started.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::identity::Identity;
use super::place::Place;

/// Between two questions whether a server is ready, or gone.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a server may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts the command in a session of its own, so that it outlives this run and no key press of this
/// terminal reaches it. Its output goes into the log.
pub(crate) fn start(place: &Place, command: &Command) -> Result<(), String> {
    let log = place.log()?;
    let errors = log.try_clone().map_err(|error| format!("the log: {error}"))?;
    // `setsid` becomes the server: the number is the server's own.
    let mut session = place.command("setsid")?;
    session.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            session.env(name, value);
        }
    }
    let child = session
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("{:?} did not start: {error}", command.get_program()))?;
    let identity = Identity::of(child.id())
        .ok_or_else(|| format!("{:?} ended at once", command.get_program()))?;
    place.write("pid", &identity.to_string()).map(|_| ())
}

/// Waits until the server answers as it should.
pub(crate) fn ready(
    place: &Place,
    patience: Duration,
    mut answers: impl FnMut() -> bool,
) -> Result<(), String> {
    let began = Instant::now();
    loop {
        if answers() {
            return Ok(());
        }
        let reason = if place.running().is_none() {
            "it ended while starting".to_owned()
        } else if began.elapsed() > patience {
            format!("it did not answer within {} s", patience.as_secs())
        } else {
            // waits: a server tells nobody when it is ready; it must be asked
            thread::sleep(PAUSE);
            continue;
        };
        place.say(format!("{reason}; the end of its log:\n{}", place.tail()));
        return Err(reason);
    }
}

/// Ends the server with this signal, and kills it where it does not obey. What somebody else
/// started is not recorded, and so is left alone.
pub(crate) fn stop(place: &Place, signal: &str) -> Result<(), String> {
    if let Some(identity) = place.running() {
        end(identity, signal)?;
    }
    place.forget()
}

/// Ends this very process.
pub(crate) fn end(identity: Identity, signal: &str) -> Result<(), String> {
    for signal in [signal, "KILL"] {
        if identity.lives() {
            // The shell's own command: a package for the program may be missing. A process that
            // ended in between is no error.
            let script = format!("kill -{signal} {}", identity.pid);
            let _ = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).status();
        }
        if gone(|| !identity.lives(), PATIENCE) {
            return Ok(());
        }
    }
    Err(format!("process {} does not end", identity.pid))
}

/// Waits until the condition holds; whether it came to hold in time.
pub(crate) fn gone(mut condition: impl FnMut() -> bool, patience: Duration) -> bool {
    let began = Instant::now();
    while !condition() {
        if began.elapsed() > patience {
            return false;
        }
        // waits: the end of a process that is not our child gives no signal
        thread::sleep(PAUSE);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::folder::Folder;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_was_started_runs_until_it_is_stopped() {
        let folder = Folder::temporary("daemon");
        let place = folder.place("test");
        start(&place, shell("echo $GREETING; exec sleep 60").env("GREETING", "hello")).unwrap();
        let identity = place.running().unwrap();
        ready(&place, PATIENCE, || place.tail() == "hello").unwrap();
        stop(&place, "TERM").unwrap();
        assert!(!identity.lives() && place.running().is_none());
        stop(&place, "TERM").unwrap();
        std::fs::remove_dir_all(&folder.path).unwrap();
    }

    #[test]
    fn a_server_that_ends_while_starting_is_told_with_its_log() {
        let folder = Folder::temporary("ended");
        let place = folder.place("test");
        let outcome = start(&place, &shell("echo no such option; exit 3"))
            .and_then(|()| ready(&place, PATIENCE, || false));
        outcome.expect_err("it ended");
        assert!(gone(|| place.tail() == "no such option", PATIENCE));
        std::fs::remove_dir_all(&folder.path).unwrap();
    }

    #[test]
    fn a_process_of_somebody_else_is_left_alone() {
        let folder = Folder::temporary("stranger");
        let place = folder.place("test");
        let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
        place.write("pid", &format!("{} 1", stranger.id())).unwrap();
        stop(&place, "KILL").unwrap();
        assert!(Identity::of(stranger.id()).is_some());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        std::fs::remove_dir_all(&folder.path).unwrap();
    }
}
