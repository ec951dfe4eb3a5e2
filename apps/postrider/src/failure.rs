//! How a command ends: the exit codes, and failures with their operator code and advice.

use std::process::ExitCode;

use postrider_core::operate::{Finding, findings};
use postrider_core::{Code, Error, ErrorKind, RetryClass};

use crate::table::clean_lines;
use crate::terminal::{Style, wrap};

/// What a shell script can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what it was asked.
    Success = 0,
    /// It failed, or was not confirmed: nothing was changed.
    Failure = 1,
    /// The command line is wrong, or a question was left open that `--yes` answers.
    Usage = 2,
    /// A one-shot run ended with events left: waiting, dead, or not reached.
    Remaining = 3,
    /// Another relay holds the lease.
    Held = 4,
    /// What was asked for is written down, and not carried out yet.
    Accepted = 5,
    /// It was examined, and something is wrong.
    Unhealthy = 6,
    /// The configuration is wrong (`EX_CONFIG`).
    Config = 78,
    /// A second signal stopped it at once, as shells count an interrupt.
    Aborted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command failed, as a person reads it.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    code: Option<Code>,
    advice: Option<String>,
    /// Nobody is there to be told, and nothing went wrong.
    silent: bool,
    retry: Option<RetryClass>,
}

impl Failure {
    /// A failure without a code.
    pub(crate) fn plain(message: impl Into<String>) -> Failure {
        Failure {
            exit: Exit::Failure,
            message: message.into(),
            code: None,
            advice: None,
            silent: false,
            retry: None,
        }
    }

    /// Standard output does not take what is written. Where its reader went away (`| head`) there is
    /// nothing left to do, and that is no failure.
    pub(crate) fn of_stdout(error: std::io::Error) -> Failure {
        let failure = Failure::plain(format!("standard output: {error}"));
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => {
                Failure { exit: Exit::Success, silent: true, ..failure }
            }
            _ => failure,
        }
    }

    /// Whether the same may succeed in a moment, with nobody doing anything.
    pub(crate) fn is_transient(&self) -> bool {
        self.retry == Some(RetryClass::Transient)
    }

    /// Whether there is nothing to say.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }

    /// A configuration that cannot work: nothing was started.
    pub(crate) fn config(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Config, code: Some(Code::Config), ..Failure::plain(message) }
    }

    /// The same failure under another code.
    pub(crate) fn code(self, code: Code) -> Failure {
        Failure { code: Some(code), ..self }
    }

    /// The same failure with another advice than the code's own.
    pub(crate) fn advice(self, advice: impl Into<String>) -> Failure {
        Failure { advice: Some(advice.into()), ..self }
    }

    /// The same failure, and what it is about.
    pub(crate) fn within(self, what: &str) -> Failure {
        Failure { message: format!("{what}: {}", self.message), ..self }
    }

    /// The same failure of where events are received from. What codes advise is for who sends them.
    #[cfg(any(test, feature = "kafka", feature = "nats", feature = "aws"))]
    pub(crate) fn of_source(self) -> Failure {
        let failure = self.within("the source");
        match failure.code {
            Some(Code::Unroutable) => failure
                .advice("Nothing was received. Create it, or correct its name, and start again."),
            Some(Code::Unauthorized) => {
                failure.advice("Nothing was received. Correct the credentials.")
            }
            _ => failure,
        }
    }

    /// Both failures in one; the code and the advice are the first one's.
    pub(crate) fn and(self, other: Failure) -> Failure {
        Failure { message: format!("{}; {}", self.message, other.message), ..self }
    }

    /// The same failure with another exit code.
    pub(crate) fn exit_as(self, exit: Exit) -> Failure {
        Failure { exit, ..self }
    }

    /// The same as a finding of `doctor`: something could not be asked, so its events wait.
    pub(crate) fn finding(self, subject: &str) -> Finding {
        let advice = self.advice.or_else(|| self.code.map(|code| code.advice().to_owned()));
        let advice = advice.unwrap_or_else(|| {
            "its events wait; look whether it runs, and whether this machine may reach it"
                .to_owned()
        });
        let code = self.code.unwrap_or(Code::Unexamined);
        findings::critical(subject, self.message, advice, code)
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// The text without colours and in one line, to look for words in it.
    #[cfg(test)]
    pub(crate) fn plain_text(&self) -> String {
        self.render(Style::plain()).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Three parts: what happened, under which code, and what to do.
    pub(crate) fn render(&self, style: Style) -> String {
        let label = match self.code {
            Some(code) => format!("error[{code}]:"),
            None => "error:".to_owned(),
        };
        // A message may repeat what stands in an event, or what a broker answered.
        let mut text = wrap(&format!("{label} {}", clean_lines(&self.message)), "  ");
        text.replace_range(..label.len(), &style.bad(&label));
        let advice = self.advice.as_deref().or_else(|| self.code.map(Code::advice));
        if let Some(advice) = advice {
            text.push_str("\n  ");
            text.push_str(&wrap(&clean_lines(advice), "  "));
        }
        text
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match error.kind() {
            ErrorKind::Config => Exit::Config,
            _ => Exit::Failure,
        };
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        Failure {
            exit,
            code: error.operator_code(),
            retry: Some(error.retry_class()),
            ..Failure::plain(message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F32: what an event or a broker says cannot move the cursor.
    #[test]
    fn a_hostile_message_is_shown_as_text() {
        let text =
            Failure::plain("refused: \x1b]0;owned\x07").advice("\u{9b}2J").render(Style::plain());
        assert!(!text.contains(['\x1b', '\x07', '\u{9b}']), "{text:?}");
    }

    #[test]
    fn an_operator_error_shows_its_code_and_its_advice() {
        let error = Error::new(ErrorKind::SchemaMissing, "open store").message("no tables");
        let text = Failure::from(error).render(Style::plain());
        assert!(text.starts_with("error[PR-1001]: open store: no tables"), "{text}");
        assert!(text.contains("postrider init URL"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    /// A sidecar has no routes, and nothing of it waits in an outbox.
    #[test]
    fn of_a_source_nothing_is_said_that_is_a_destinations() {
        for kind in [ErrorKind::Unroutable, ErrorKind::Unauthorized] {
            let text = Failure::from(Error::new(kind, "subscribe")).of_source().plain_text();
            assert!(text.contains("the source: subscribe"), "{text}");
            assert!(text.contains("Nothing was received."), "{text}");
            assert!(!text.contains("events wait") && !text.contains("route"), "{text}");
        }
    }
}
