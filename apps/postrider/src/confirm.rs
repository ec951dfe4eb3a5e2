//! Questions before a change: asked on the terminal, answered there or by `--yes`.
//!
//! Invariant: without a person at the terminal and without `--yes` nothing is changed.

use std::io::{self, IsTerminal as _, Write as _};

use crate::failure::{Exit, Failure};
use crate::signals::Signals;
use crate::terminal::{note, style};

/// What came of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It may be done.
    Go,
    /// It may not; the command ends so.
    Stop(Exit),
}

/// Asks for a yes.
///
/// # Errors
/// If there is nobody to ask.
pub(crate) async fn yes(assumed: bool, question: &str) -> Result<Answer, Failure> {
    if assumed {
        return Ok(Answer::Go);
    }
    must_be_a_person()?;
    Ok(match ask(&format!("{question} [y/N] ")).await? {
        Reply::Line(line) if matches!(&*line.to_lowercase(), "y" | "yes") => Answer::Go,
        reply => unchanged(&reply),
    })
}

/// Asks for a name, which nobody types by accident.
///
/// # Errors
/// If there is nobody to ask.
pub(crate) async fn name(assumed: bool, question: &str, name: &str) -> Result<Answer, Failure> {
    if assumed {
        return Ok(Answer::Go);
    }
    must_be_a_person()?;
    Ok(match ask(&format!("{question}\ntype `{}` to go on: ", name.escape_debug())).await? {
        Reply::Line(line) if line == name => Answer::Go,
        reply => unchanged(&reply),
    })
}

/// What the terminal gave.
enum Reply {
    Line(String),
    /// The end of input.
    End,
    /// A signal.
    Stopped,
}

fn must_be_a_person() -> Result<(), Failure> {
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        return Ok(());
    }
    Err(Failure::plain("there is no terminal to ask on")
        .advice("Nothing was changed. Look at it with --dry-run, then add --yes.")
        .exit_as(Exit::Usage))
}

fn unchanged(reply: &Reply) -> Answer {
    // The question's line is still open where no line break was typed.
    let fresh = if matches!(reply, Reply::Line(_)) { "" } else { "\n" };
    let _ = write!(io::stderr().lock(), "{fresh}");
    note("nothing was changed");
    Answer::Stop(match reply {
        Reply::Stopped => Exit::Aborted,
        _ => Exit::Failure,
    })
}

async fn ask(question: &str) -> Result<Reply, Failure> {
    let mut signals = Signals::catch().map_err(|e| Failure::plain(format!("signals: {e}")))?;
    let _ = write!(io::stderr().lock(), "{}", style().notable(question));
    let _ = io::stderr().lock().flush();
    // A thread of its own: a line cannot be waited for otherwise, and the process may end meanwhile.
    let line = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|bytes| (bytes > 0).then_some(line))
    });
    tokio::select! {
        _ = signals.next() => Ok(Reply::Stopped),
        line = line => match line {
            Ok(Ok(Some(line))) => Ok(Reply::Line(line.trim().to_owned())),
            Ok(Ok(None)) => Ok(Reply::End),
            Ok(Err(e)) => Err(Failure::plain(format!("standard input: {e}"))),
            Err(_) => Ok(Reply::End),
        },
    }
}
