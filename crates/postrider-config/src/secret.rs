//! Secrets: written in the configuration only as a reference, read only when asked for, shown never.
//!
//! Invariant: neither `Debug` nor an error holds the text of a secret, nor what was written in place
//! of a reference.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::field::Scalar;
use crate::key::{Json, Key, Leaf};
use crate::node::{Node, Place};
use crate::reading::Complaint;

/// A secret's file may be so large: certificates with their chain are smaller.
pub const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// Where a secret is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretRef {
    /// In an environment variable: `env:NAME`.
    Variable(String),
    /// In a file: `file:PATH`, relative to the working directory.
    File(PathBuf),
}

/// A secret's text. It has no `Display`, and its `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text, for the code that needs it, never for a person.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub(crate) fn new(text: String) -> Secret {
        Secret(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretRef::Variable(name) => write!(f, "env:{name}"),
            SecretRef::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl SecretRef {
    /// Reads a reference; nothing if the text is none.
    ///
    /// ```
    /// use postrider_config::SecretRef;
    /// assert_eq!(SecretRef::parse("env:KEY"), Some(SecretRef::Variable("KEY".into())));
    /// assert_eq!(SecretRef::parse("file:/run/key"), Some(SecretRef::File("/run/key".into())));
    /// assert_eq!(SecretRef::parse("hunter2"), None);
    /// ```
    pub fn parse(text: &str) -> Option<SecretRef> {
        let control = text.chars().any(char::is_control);
        if let Some(name) = text.strip_prefix("env:") {
            let valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let digit = name.starts_with(|c: char| c.is_ascii_digit());
            let fits = !name.is_empty() && !digit && name.chars().all(valid);
            return fits.then(|| SecretRef::Variable(name.to_owned()));
        }
        let path = text.strip_prefix("file:")?;
        // `file://…` is an address; a path of its own never begins with two slashes.
        let fits = !path.is_empty() && !path.starts_with("//") && !control;
        fits.then(|| SecretRef::File(path.into()))
    }

    /// Reads the secret. One line end at the end of a file does not count.
    ///
    /// Returns it with a warning, if others than the owner can read its file.
    ///
    /// # Errors
    /// A sentence that names the variable or the file: missing, unreadable, empty, not UTF-8, or
    /// larger than [`SECRET_BYTES_MAX`].
    pub fn resolve(&self, environment: &Environment) -> Result<(Secret, Option<String>), String> {
        match self {
            SecretRef::Variable(name) => match environment.get(name) {
                None => Err(format!("the environment variable {name} is not set")),
                Some(None) => Err(format!("the environment variable {name} is not UTF-8")),
                Some(Some("")) => Err(format!("the environment variable {name} is empty")),
                Some(Some(text)) => Ok((Secret(text.to_owned()), None)),
            },
            SecretRef::File(path) => read(path),
        }
    }
}

fn read(path: &Path) -> Result<(Secret, Option<String>), String> {
    let shown = path.display();
    let refuse = |why: &dyn fmt::Display| format!("the file {shown} cannot be read: {why}");
    let metadata = std::fs::metadata(path).map_err(|error| refuse(&error))?;
    // Opening a pipe waits for its other end.
    if !metadata.is_file() {
        return Err(refuse(&"it is not a regular file"));
    }
    let file = File::open(path).map_err(|error| refuse(&error))?;
    let mut bytes = Vec::new();
    let limited = &mut file.take(SECRET_BYTES_MAX + 1);
    limited.read_to_end(&mut bytes).map_err(|error| refuse(&error))?;
    if bytes.len() as u64 > SECRET_BYTES_MAX {
        return Err(refuse(&format!("it has more than {SECRET_BYTES_MAX} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| refuse(&"it is not UTF-8"))?;
    let line =
        text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
    if line.is_empty() {
        return Err(format!("the file {shown} is empty"));
    }
    Ok((Secret(line.to_owned()), open_to_others(path, &metadata)))
}

#[cfg(unix)]
fn open_to_others(path: &Path, metadata: &std::fs::Metadata) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = metadata.permissions().mode() & 0o777;
    (mode & 0o044 != 0).then(|| {
        format!("the file {} can be read by others than its owner (mode {mode:o})", path.display())
    })
}

#[cfg(not(unix))]
fn open_to_others(_: &Path, _: &std::fs::Metadata) -> Option<String> {
    None
}

impl Scalar for SecretRef {
    const LEAF: Leaf = Leaf {
        word: "secret",
        expected: "a reference to a secret, like \"env:NAME\" or \"file:/run/secrets/name\"",
        example: "env:NAME",
        json: Json::Text("^(env:[A-Za-z_][A-Za-z0-9_]*|file:(/?[^/]).*)$"),
        secret: true,
    };

    fn parse(node: &Node, key: &Key) -> Option<Result<SecretRef, Complaint>> {
        let text = node.text()?;
        if let Some(reference) = SecretRef::parse(text) {
            return Some(Ok(reference));
        }
        Some(of_variable(node).ok_or_else(|| refusal(text, key.name)))
    }

    fn shown(&self) -> String {
        self.to_string()
    }

    fn placeholder() -> SecretRef {
        SecretRef::Variable(String::new())
    }

    fn secret(&self) -> Option<&SecretRef> {
        Some(self)
    }
}

/// A secret that a variable of ours holds itself: the variable is the reference.
pub(crate) fn of_variable(node: &Node) -> Option<SecretRef> {
    let whole = matches!(node.value, crate::node::Value::Loose(_));
    match &node.place {
        Place::Variable(name) if whole => Some(SecretRef::Variable(name.to_string())),
        _ => None,
    }
}

/// What is said about a text that is no reference, without repeating it.
fn refusal(text: &str, key: &str) -> Complaint {
    let message = if text.starts_with("env:") {
        format!("`{key}`: the name after env: has letters, digits, and _, and no digit in front")
    } else if text.starts_with("file:") {
        format!("`{key}`: a path follows file:, like file:/run/secrets/name")
    } else {
        format!("`{key}` holds a secret itself; secrets stand in the environment or in a file")
    };
    Complaint::new(
        message,
        "write \"env:NAME\" or \"file:/run/secrets/name\"; it is not shown here",
    )
}
