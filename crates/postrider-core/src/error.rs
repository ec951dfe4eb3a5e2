//! The one error type: what kind, whether trying again can help, which operation, to what, and why.

use std::error::Error as StdError;
use std::fmt;

use crate::Code;

/// The result of everything that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, grouped by what a caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input breaks a documented rule; nothing was written.
    Invalid,
    /// The event or request is larger than a limit; nothing was written.
    TooLarge,
    /// The configuration contradicts itself or names what does not exist.
    Config,
    /// A lock was not free in time. Nothing was written; try again.
    Busy,
    /// The other side cannot be reached, or went away.
    Unavailable,
    /// No answer in time. What was asked for may have happened.
    Timeout,
    /// The lease was lost: somebody else owns it now, and this write was refused.
    Fenced,
    /// The same identity with different content.
    Conflict,
    /// What was named does not exist.
    NotFound,
    /// The store has no Postrider tables.
    SchemaMissing,
    /// The store's tables are of a newer version than this program knows.
    SchemaTooNew,
    /// The store cannot be written to.
    ReadOnly,
    /// The disk is full.
    DiskFull,
    /// The store's file is damaged, or is no database.
    Corrupt,
    /// The store's numbers run behind the cursor: it was restored, or replaced.
    Rewound,
    /// The backlog is over the watermark: the producer should slow down. Nothing was written.
    Backpressure,
    /// The other side does not accept who we are.
    Unauthorized,
    /// The other side refuses this for good.
    Rejected,
    /// The other side has no such topic, queue, or subject.
    Unroutable,
    /// The thing asked was closed.
    Closed,
    /// A defect in this program.
    Internal,
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryClass {
    /// The same call may succeed later, with nobody doing anything.
    Transient,
    /// Nothing changes until a person changes something.
    Operator,
    /// The same call fails for ever.
    Permanent,
}

impl ErrorKind {
    /// The retry class that goes with the kind: the one table that turns kinds into policy.
    pub const fn retry_class(self) -> RetryClass {
        match self {
            ErrorKind::Busy
            | ErrorKind::Unavailable
            | ErrorKind::Timeout
            | ErrorKind::Backpressure => RetryClass::Transient,
            ErrorKind::ReadOnly
            | ErrorKind::DiskFull
            | ErrorKind::SchemaMissing
            | ErrorKind::SchemaTooNew
            | ErrorKind::Corrupt
            | ErrorKind::Rewound
            | ErrorKind::Unauthorized
            | ErrorKind::Unroutable
            | ErrorKind::Config => RetryClass::Operator,
            ErrorKind::Invalid
            | ErrorKind::TooLarge
            | ErrorKind::Fenced
            | ErrorKind::Conflict
            | ErrorKind::NotFound
            | ErrorKind::Rejected
            | ErrorKind::Closed
            | ErrorKind::Internal => RetryClass::Permanent,
        }
    }

    /// Whether an error of an inbox is about the event that it was given, and will be the same whenever that comes. All
    /// others are the store's, and no event is put aside for them.
    ///
    /// ```
    /// use postrider_core::ErrorKind;
    ///
    /// assert!(ErrorKind::TooLarge.blames_event());
    /// assert!(!ErrorKind::Internal.blames_event());
    /// ```
    pub fn blames_event(self) -> bool {
        matches!(self, ErrorKind::Invalid | ErrorKind::TooLarge | ErrorKind::Conflict)
    }

    /// Whether a handler that fails with this in its inbox's own database failed in what that database cannot do now: it is
    /// nobody's fault, and counts against no event. [`Backpressure`](ErrorKind::Backpressure) is none of them: the database
    /// is well, and the event alone is to wait.
    ///
    /// ```
    /// use postrider_core::ErrorKind;
    ///
    /// assert!(ErrorKind::DiskFull.excuses_event());
    /// assert!(!ErrorKind::Conflict.excuses_event());
    /// ```
    pub fn excuses_event(self) -> bool {
        match self {
            ErrorKind::Backpressure => false,
            ErrorKind::DiskFull | ErrorKind::ReadOnly => true,
            kind => kind.retry_class() == RetryClass::Transient,
        }
    }

    /// Its name as spans and metrics say it, in `error.type`.
    ///
    /// ```
    /// use postrider_core::ErrorKind;
    ///
    /// assert_eq!(ErrorKind::Timeout.snake_case(), "timeout");
    /// assert_eq!(ErrorKind::SchemaTooNew.snake_case(), "schema_too_new");
    /// ```
    pub fn snake_case(self) -> String {
        let mut text = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_ascii_uppercase() && !text.is_empty() {
                text.push('_');
            }
            text.push(letter.to_ascii_lowercase());
        }
        text
    }
}

/// An error of Postrider: opaque, cheap to move, with its kind, operation, context, and source.
///
/// The text says what happened, to what, and what was not lost. It never holds a secret: adapters
/// pass names and redacted addresses, not URLs as they were given.
///
/// ```
/// use postrider_core::{Error, ErrorKind, RetryClass};
/// let error = Error::new(ErrorKind::Busy, "settle")
///     .message("the database is locked by another writer")
///     .context("store", "shop.db");
/// assert_eq!(error.retry_class(), RetryClass::Transient);
/// assert_eq!(
///     error.to_string(),
///     "settle: the database is locked by another writer (store=shop.db)"
/// );
/// ```
pub struct Error(Box<Repr>);

struct Repr {
    kind: ErrorKind,
    operation: &'static str,
    message: String,
    context: Vec<(&'static str, String)>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    code: Option<Code>,
    of_store: bool,
}

impl Error {
    /// An error of a kind, in an operation named by its verb.
    pub fn new(kind: ErrorKind, operation: &'static str) -> Error {
        Error(Box::new(Repr {
            kind,
            operation,
            message: String::new(),
            context: Vec::new(),
            source: None,
            code: Code::of_kind(kind),
            of_store: false,
        }))
    }

    /// Says what happened, for a person.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Error {
        self.0.message = message.into();
        self
    }

    /// Adds what it happened to. Never a secret.
    #[must_use]
    pub fn context(mut self, name: &'static str, value: impl ToString) -> Error {
        self.0.context.push((name, value.to_string()));
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.0.source = Some(source.into());
        self
    }

    /// Sets the operator code, where the kind alone does not say enough.
    #[must_use]
    pub fn code(mut self, code: Code) -> Error {
        self.0.code = Some(code);
        self
    }

    /// Says that all of a store is [`Busy`](ErrorKind::Busy), and not the rows alone that were asked for: whoever asks for
    /// others gets the same answer now.
    ///
    /// ```
    /// use postrider_core::{Error, ErrorKind};
    ///
    /// assert!(!Error::new(ErrorKind::Busy, "claim").is_of_store());
    /// assert!(Error::new(ErrorKind::Busy, "claim").of_store().is_of_store());
    /// assert!(Error::new(ErrorKind::Unavailable, "claim").is_of_store());
    /// ```
    #[must_use]
    pub fn of_store(mut self) -> Error {
        self.0.of_store = true;
        self
    }

    /// The same error for another who asked the same at the same moment: all of it but its cause.
    pub fn repeated(&self) -> Error {
        let Repr { kind, operation, code, of_store, .. } = *self.0;
        let (message, context) = (self.0.message.clone(), self.0.context.clone());
        Error(Box::new(Repr { kind, operation, message, context, source: None, code, of_store }))
    }

    /// What it says, without the partition and the token that it was about: the same for all that one cause meets.
    ///
    /// ```
    /// # use postrider_core::{Error, ErrorKind};
    /// let met = |partition| Error::new(ErrorKind::Unavailable, "settle").context("partition", partition);
    /// assert_ne!(met(1).to_string(), met(2).to_string());
    /// assert_eq!(met(1).of_any_partition(), met(2).of_any_partition());
    /// ```
    pub fn of_any_partition(&self) -> String {
        let mut text = String::new();
        // A string takes whatever is written to it.
        _ = self.0.write(&mut text, &["partition", "token"]);
        text
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether an error of a store is about all of it: asked for anything else it would fail as well. Not so where others
    /// have the row, or the event itself is refused.
    pub fn is_of_store(&self) -> bool {
        match self.0.kind {
            ErrorKind::Busy => self.0.of_store,
            ErrorKind::Fenced => false,
            kind => !kind.blames_event(),
        }
    }

    /// Whether trying again can help.
    pub fn retry_class(&self) -> RetryClass {
        self.0.kind.retry_class()
    }

    /// The operation that failed.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The operator's code, where there is a page about this error.
    pub fn operator_code(&self) -> Option<Code> {
        self.0.code
    }
}

impl Repr {
    fn write(&self, to: &mut impl fmt::Write, left_out: &[&str]) -> fmt::Result {
        to.write_str(self.operation)?;
        if self.message.is_empty() {
            write!(to, ": {:?}", self.kind)?;
        } else {
            write!(to, ": {}", self.message)?;
        }
        let mut open = " (";
        for (name, value) in self.context.iter().filter(|(name, _)| !left_out.contains(name)) {
            write!(to, "{open}{name}={value}")?;
            open = ", ";
        }
        if open == " (" { Ok(()) } else { to.write_str(")") }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, &[])
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)?;
        let mut cause = StdError::source(self);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}
